package containerd

import (
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"

	"podrun.io/podrun/internal/runtime"
)

// IsDeviceName reports a name that CDI's devices have.
func IsDeviceName(name string) bool { return parser.IsQualifiedName(name) }

// addDevices gives the container the devices that its pod names by annotation and those that are its own for
// what it asks for by limits, as this node's CDI specifications, read anew each time, describe them.
func (r *Runtime) addDevices(l *launch, spec *specs.Spec) error {
	_, devices, err := cdi.ParseAnnotations(l.Pod.Annotations)
	var own []string
	if err == nil {
		own, err = r.devices.Of(l.Sandbox.ID, l.Pod, l.Container.Name)
		devices = append(devices, own...)
	}
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
