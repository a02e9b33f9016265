package start

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	containerdoci "github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"podrun.io/podrun/internal/device"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// failed is the error of a container that waits for its devices.
func failed(err error) error {
	return &runtime.ReasonError{Reason: runtime.ReasonConfig, Err: fmt.Errorf("adding devices: %w", err)}
}

// setDevices sets which devices the container gets for its limits.
func (st *ContainerStarter) setDevices(ctx context.Context, l *launch) error {
	err := plugged(ctx, l.Pod, func(ctx context.Context) (err error) {
		l.devices, err = st.o.Devices.Of(ctx, l.Sandbox.ID, l.Pod, l.Container.Name)
		return err
	})
	if err != nil {
		return failed(err)
	}
	return nil
}

// plugged calls do, in which device plugins may be called for p. They may hang: the call is given up when p is not
// wanted any more.
func plugged(ctx context.Context, p *v1.Pod, do func(context.Context) error) error {
	if !pod.NeedsDevices(p) {
		return do(ctx)
	}
	names := map[string]bool{}
	for _, c := range pod.AllContainers(p) {
		for name := range c.Resources.Limits {
			if pod.IsDevice(name) {
				names[string(name)] = true
			}
		}
	}
	return runtime.Call(ctx, "WaitingForDevicePlugin", "waiting for an answer of the device plugin of "+
		strings.Join(slices.Sorted(maps.Keys(names)), ", "), do)
}

// addDevices adds devices of the Container Device Interface to the container's spec: those that the pod names
// by annotation, and those that were allocated to the container for its limits. It reads this node's CDI
// specifications anew each time: a plugin may have written them just now.
func (st *ContainerStarter) addDevices(l *launch, spec *specs.Spec) error {
	_, devices, err := cdi.ParseAnnotations(l.Pod.Annotations)
	if err != nil {
		return failed(err)
	}
	devices = append(devices, l.devices.CDI...)
	for _, a := range l.devices.Answers {
		for _, d := range a.CdiDevices {
			devices = append(devices, d.Name)
		}
	}
	if len(devices) == 0 {
		return nil
	}
	slices.Sort(devices) // for a stable order
	devices = slices.Compact(devices)
	cache, err := cdi.NewCache(cdi.WithSpecDirs(st.o.CDIDirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return failed(err)
	}
	if _, err := cache.InjectDevices(spec, devices...); err != nil {
		return failed(err)
	}
	return nil
}

// addPlugged adds to the spec what device plugins said that the container needs. What the container's manifest
// says wins, and of several plugins the first one that names a variable, a path or an annotation, as in the
// kubelet.
func addPlugged(l *launch, spec *specs.Spec) error {
	privileged := pod.Security(l.Pod, l.Container).Privileged
	set := map[string]bool{}
	for _, v := range l.Env {
		set[v.Name] = true
	}
	deeper := false
	for _, a := range l.devices.Answers {
		for _, name := range slices.Sorted(maps.Keys(a.Envs)) {
			if !set[name] {
				set[name] = true
				setEnv(spec, name, a.Envs[name])
			}
		}
		for _, name := range slices.Sorted(maps.Keys(a.Annotations)) {
			if spec.Annotations == nil {
				spec.Annotations = map[string]string{}
			}
			if _, is := spec.Annotations[name]; !is {
				spec.Annotations[name] = a.Annotations[name]
			}
		}
		for _, m := range a.Mounts {
			if err := addMount(spec, m); err != nil {
				return failed(err)
			}
			deeper = true
		}
		for _, d := range a.Devices {
			if err := addDevice(spec, d, privileged != nil && *privileged); err != nil {
				return failed(err)
			}
		}
	}
	if deeper {
		sortMounts(spec.Mounts)
	}
	return nil
}

// sortMounts puts outer mounts first: a mount must not cover what the container has below it.
func sortMounts(mounts []specs.Mount) {
	slices.SortStableFunc(mounts, func(a, b specs.Mount) int {
		return strings.Count(path.Join("/", a.Destination), "/") - strings.Count(path.Join("/", b.Destination), "/")
	})
}

// setEnv sets a variable, which the image may have set.
func setEnv(spec *specs.Spec, name, value string) {
	spec.Process.Env = slices.DeleteFunc(spec.Process.Env, func(entry string) bool {
		return strings.HasPrefix(entry, name+"=")
	})
	spec.Process.Env = append(spec.Process.Env, name+"="+value)
}

func addMount(spec *specs.Spec, m *v1beta1.Mount) error {
	at := path.Join("/", m.ContainerPath)
	for _, has := range spec.Mounts {
		if path.Join("/", has.Destination) == at {
			return nil
		}
	}
	if err := device.MakeSource(m); err != nil {
		return err
	}
	mode := "rw"
	if m.ReadOnly {
		mode = "ro"
	}
	spec.Mounts = append(spec.Mounts, specs.Mount{
		Source: m.HostPath, Destination: at, Type: "bind", Options: []string{"rbind", "rprivate", mode},
	})
	return nil
}

// addDevice adds a device node, which plugins also name by a link, as in /dev/serial/by-id. A privileged
// container has all of the machine's under their own names.
func addDevice(spec *specs.Spec, d *v1beta1.DeviceSpec, privileged bool) error {
	at := cmp.Or(d.ContainerPath, d.HostPath)
	for _, has := range spec.Linux.Devices {
		if has.Path == at {
			return nil
		}
	}
	rules := spec.Linux.Resources.Devices
	host, err := filepath.EvalSymlinks(d.HostPath) // trusted: the administrator's or a plugin's
	if err == nil {
		err = containerdoci.WithDevices(host, at, d.Permissions)(context.Background(), nil, nil, spec)
	}
	if err != nil {
		return fmt.Errorf("device %s: %w", d.HostPath, err)
	}
	if privileged {
		spec.Linux.Resources.Devices = rules // they allow all
	}
	return nil
}

// addBlocks adds the block devices of volumes. At their paths the container has no others.
func addBlocks(l *launch, spec *specs.Spec) error {
	privileged := pod.Security(l.Pod, l.Container).Privileged
	for _, m := range l.Mounts {
		if !m.Block {
			continue
		}
		at := path.Join("/", m.ContainerPath)
		if err := verifyBlock(spec.Mounts, m.HostPath, at); err != nil {
			return failed(err)
		}
		spec.Linux.Devices = slices.DeleteFunc(spec.Linux.Devices, func(d specs.LinuxDevice) bool {
			return path.Join("/", d.Path) == at
		})
		permissions := "rwm"
		if m.ReadOnly {
			permissions = "r" // as the kubelet has it
		}
		d := &v1beta1.DeviceSpec{HostPath: m.HostPath, ContainerPath: at, Permissions: permissions}
		if err := addDevice(spec, d, privileged != nil && *privileged); err != nil {
			return failed(err)
		}
	}
	return nil
}

// verifyBlock returns an error for what is no block device, such as a directory, all of whose devices the container
// would get, and for a path in a volume or in a plugin's mount, where something would have to be made for it.
func verifyBlock(mounts []specs.Mount, host, at string) error {
	info, err := os.Lstat(host)
	if err != nil {
		return err
	}
	if info.Mode()&(fs.ModeDevice|fs.ModeCharDevice) != fs.ModeDevice {
		return fmt.Errorf("%s is not a block device", host)
	}
	for _, m := range mounts {
		if dir := path.Join("/", m.Destination); m.Type == "bind" && isBelow(at, dir) && at != dir {
			return fmt.Errorf("the devicePath %s is in the volume that is mounted at %s", at, dir)
		}
	}
	return nil
}
