package start

import (
	"fmt"
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
	dir := t.TempDir()
	link := filepath.Join(dir, "by-id")
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
				{ContainerPath: "/opt/x/", HostPath: dir + "/one"}, {ContainerPath: "/data/", HostPath: dir + "/two"},
				{ContainerPath: "/ro", HostPath: dir + "/up/three", ReadOnly: true},
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
		mounts = append(mounts, m.Destination+"="+strings.TrimPrefix(m.Source, dir))
	}
	if want := []string{"/proc=", "/data=/own", "/ro=/up/three", "/opt/x=/one", "/opt/x/below=/own"}; !slices.Equal(mounts, want) {
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
	// What is missing of the mounts is made, as by containerd under a kubelet, but not what the container has another of.
	for name, want := range map[string]bool{"one": true, "up/three": true, "two": false} {
		if info, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want || want && info.Mode() != os.ModeDir|0o755 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	l.devices.Answers[0].Devices[0].HostPath = "/nowhere"
	if err := addPlugged(l, build()); err == nil || err.Error() != "adding devices: device /nowhere: lstat /nowhere: no such file or directory" {
		t.Errorf("a device that is missing: %v", err)
	}
}

// TestMountsThatCannotBeMade: the error says of which mount the path cannot be made, and why.
func TestMountsThatCannotBeMade(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, err := range []error{
		os.WriteFile(dir+"/file", nil, 0o600), os.Symlink(dir+"/gone", dir+"/dangling"), os.Symlink(dir, dir+"/link"),
		os.Symlink(dir, dir+"/strange"), os.Lchown(dir+"/strange", 1000, 1000),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		dir + "/new/a":     "",
		dir + "/link/b/c":  "",
		dir + "/file":      "",
		dir + "/file/x":    "stat " + dir + "/file/x: not a directory",
		dir + "/dangling":  "lstat " + dir + "/gone: no such file or directory",
		dir + "/strange/x": "the link " + dir + "/strange: is owned by user 1000; chown root it",
		"relative":         `the path "relative" is not absolute`,
		"":                 `the path "" is not absolute`,
	} {
		l := &launch{Start: runtime.Start{Pod: &v1.Pod{}, Container: &v1.Container{Name: "c"}}}
		l.devices.Answers = []*v1beta1.ContainerAllocateResponse{{Mounts: []*v1beta1.Mount{{ContainerPath: "/m", HostPath: path}}}}
		err := addPlugged(l, &specs.Spec{})
		if want != "" {
			want = "adding devices: mount at /m: " + want
		}
		if got := fmt.Sprint(err); (err == nil) != (want == "") || err != nil && got != want {
			t.Errorf("%q: %v, want %s", path, err, want)
		}
	}
	if _, err := os.Stat(dir + "/b/c"); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir + "/x"); err == nil {
		t.Error("made where a stranger led to")
	}
}
