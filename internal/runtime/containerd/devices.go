package containerd

import (
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"podrun.io/podrun/internal/runtime"
)

// addDevices gives the container the devices that its pod names by annotation, as this node's CDI
// specifications, read anew each time, describe them.
func (r *Runtime) addDevices(p *v1.Pod, spec *specs.Spec) error {
	_, devices, err := cdi.ParseAnnotations(p.Annotations)
	if err == nil && len(devices) == 0 {
		return nil
	}
	fail := func(err error) error {
		return &runtime.ReasonError{Reason: "CreateContainerConfigError", Err: fmt.Errorf("adding devices: %w", err)}
	}
	if err != nil {
		return fail(err)
	}
	slices.Sort(devices) // always in the same order
	devices = slices.Compact(devices)
	cache, err := cdi.NewCache(cdi.WithSpecDirs(r.CDIDirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return fail(err)
	}
	if _, err := cache.InjectDevices(spec, devices...); err != nil {
		return fail(err)
	}
	return nil
}
