package containerd

import (
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"

	"podrun.io/podrun/internal/runtime"
)

// IsDeviceName reports whether name has the form of a CDI device name (vendor/class=name).
func IsDeviceName(name string) bool { return parser.IsQualifiedName(name) }

// addDevices adds devices to the container's spec: those that the pod names by annotation, and
// those that were allocated to the container for its limits. It reads this node's CDI
// specifications anew each time.
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
	slices.Sort(devices) // for a stable order
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
