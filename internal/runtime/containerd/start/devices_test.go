package start

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podrun.io/podrun/internal/device"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// TestAddPlugged: what the manifest says wins, then the first plugin, then the image. No mount covers what is below it.
func TestAddPlugged(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), "by-id")
	if err := os.Symlink("/dev/null", link); err != nil {
		t.Fatal(err)
	}
	l := &launch{Start: runtime.Start{
		Pod: &v1.Pod{}, Container: &v1.Container{Name: "c"}, Env: []pod.Variable{{Name: "OWN", Value: "own"}},
	}}
	l.devices = device.Given{Answers: []*v1beta1.ContainerAllocateResponse{
		{
			Envs: map[string]string{"OWN": "plugin", "IMAGE": "plugin", "NEW": "first"}, Annotations: map[string]string{"a": "first"},
			Mounts: []*v1beta1.Mount{
				{ContainerPath: "/opt/x/", HostPath: "/one"}, {ContainerPath: "/data/", HostPath: "/two"}, {ContainerPath: "/ro", HostPath: "/three", ReadOnly: true},
			},
			Devices: []*v1beta1.DeviceSpec{{HostPath: link, ContainerPath: "/dev/zigbee", Permissions: "r"}},
		},
		{Envs: map[string]string{"NEW": "second"}, Annotations: map[string]string{"a": "second"}},
	}}
	build := func() *specs.Spec {
		return &specs.Spec{
			Process: &specs.Process{Env: []string{"IMAGE=image", "OWN=own"}},
			Mounts:  []specs.Mount{{Destination: "/proc"}, {Destination: "/data", Source: "/own"}, {Destination: "/opt/x/below", Source: "/own"}},
			Linux:   &specs.Linux{Resources: &specs.LinuxResources{}},
		}
	}
	spec := build()
	if err := addPlugged(l, spec); err != nil {
		t.Fatal(err)
	}
	if want := []string{"OWN=own", "IMAGE=plugin", "NEW=first"}; !slices.Equal(spec.Process.Env, want) {
		t.Errorf("variables: %v, want %v", spec.Process.Env, want)
	}
	var mounts []string
	for _, m := range spec.Mounts {
		mounts = append(mounts, m.Destination+"="+m.Source)
	}
	if want := []string{"/proc=", "/data=/own", "/ro=/three", "/opt/x=/one", "/opt/x/below=/own"}; !slices.Equal(mounts, want) {
		t.Errorf("mounts: %v, want %v", mounts, want)
	}
	if spec.Annotations["a"] != "first" || !slices.Contains(spec.Mounts[2].Options, "ro") {
		t.Errorf("%v, %v", spec.Annotations, spec.Mounts[2])
	}
	if all := spec.Linux.Devices; len(all) != 1 || all[0].Path != "/dev/zigbee" || all[0].Major != 1 || all[0].Minor != 3 {
		t.Errorf("devices: %+v", all)
	}
	if rules := spec.Linux.Resources.Devices; len(rules) != 1 || !rules[0].Allow || rules[0].Access != "r" {
		t.Errorf("rules: %+v", rules)
	}
	l.devices.Answers[0].Devices[0].HostPath = "/nowhere"
	if err := addPlugged(l, build()); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("a device that is missing: %v", err)
	}
}
