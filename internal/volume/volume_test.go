package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// fixture is a machine of its own: podrun's root and the host's /etc.
type fixture struct {
	*Volumes
	root, host string
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	f := fixture{root: filepath.Join(t.TempDir(), "root"), host: t.TempDir()}
	f.Volumes = New(Options{Dirs: f.dirs(), HostRoot: f.host})
	t.Cleanup(func() { _ = f.Teardown(context.Background(), "u1") })
	return f
}

// with returns a fixture with the same directories and other options.
func (f fixture) with(o Options) fixture {
	o.Dirs, o.HostRoot = f.dirs(), f.host
	f.Volumes = New(o)
	return f
}

// Setup readies the mounts of a container that refers to nothing.
func (f fixture) Setup(ctx context.Context, p *v1.Pod, c *v1.Container, s pod.Sandbox) ([]pod.Mount, error) {
	return f.Volumes.Setup(ctx, pod.Inside{Pod: p, Container: c, Sandbox: s})
}

func (f fixture) dirs() layout.Dirs { return layout.Dirs{Root: f.root, Run: f.root + "-run"} }

func (f fixture) put(t *testing.T, name, content string) {
	t.Helper()
	path := filepath.Join(f.host, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func podWith(volumes ...v1.Volume) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-node1", UID: "u1"},
		Spec:       v1.PodSpec{Volumes: volumes},
	}
}

func emptyDir(name string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}
}

func hostPath(path string, kind v1.HostPathType) v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path, Type: &kind}}}
}

func mounting(mounts ...v1.VolumeMount) *v1.Container {
	return &v1.Container{Name: "c", VolumeMounts: mounts}
}

var mountV = v1.VolumeMount{Name: "v", MountPath: "/v"}

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

func TestMountsInOrder(t *testing.T) {
	f := newFixture(t)
	p := podWith(emptyDir("a"), emptyDir("b"), v1.Volume{Name: "none"})
	c := mounting(
		v1.VolumeMount{Name: "b", MountPath: "/data/deep/b", ReadOnly: true},
		v1.VolumeMount{Name: "a", MountPath: "data"},
		v1.VolumeMount{Name: "a", MountPath: "/x/../again/"},
		v1.VolumeMount{Name: "none", MountPath: "/etc/hosts"},
	)
	got, err := f.Setup(t.Context(), p, c, pod.Sandbox{})
	if err != nil {
		t.Fatal(err)
	}
	dirs := f.dirs()
	want := []pod.Mount{
		{HostPath: dirs.Revision("u1").EmptyDir("a"), ContainerPath: "/data"},
		{HostPath: dirs.Revision("u1").EmptyDir("a"), ContainerPath: "/again"},
		{HostPath: dirs.Revision("u1").Etc() + "/hostname", ContainerPath: "/etc/hostname", Managed: true},
		{HostPath: dirs.Revision("u1").Etc() + "/resolv.conf", ContainerPath: "/etc/resolv.conf", Managed: true},
		{HostPath: dirs.Revision("u1").EmptyDir("none"), ContainerPath: "/etc/hosts"},
		{HostPath: dirs.Revision("u1").EmptyDir("b"), ContainerPath: "/data/deep/b", ReadOnly: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

func TestEmptyDirIsSharedAndKept(t *testing.T) {
	f := newFixture(t)
	p := podWith(emptyDir("v"))
	dir := f.dirs().Revision("u1").EmptyDir("v")
	// What a setup that was cut off left.
	if err := os.MkdirAll(filepath.Join(filepath.Dir(dir), ".new"), 0o700); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := f.Setup(t.Context(), p, mounting(mountV), pod.Sandbox{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if m := mode(t, dir); m != os.ModeDir|0o777 {
		t.Fatalf("mode %v", m)
	}
	if err := errors.Join(os.WriteFile(dir+"/f", nil, 0o600), os.Chmod(dir, 0o750)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Setup(t.Context(), p, mounting(mountV), pod.Sandbox{}); err != nil {
		t.Fatal(err)
	}
	if m := mode(t, dir); m != os.ModeDir|0o750 {
		t.Errorf("a restart changed the mode to %v", m)
	}
	mode(t, dir+"/f")
	if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) != 1 {
		t.Errorf("left %v", left)
	}
}

// TestEmptyDirNotLedAstray: symbolic links in the pod's directory do not lead out of it.
func TestEmptyDirNotLedAstray(t *testing.T) {
	dirs := func(f fixture) layout.Dirs { return f.dirs() }
	for name, link := range map[string]func(f fixture) string{
		"the pod's directory":     func(f fixture) string { return dirs(f).Pod("u1") },
		"its volumes' directory":  func(f fixture) string { return filepath.Dir(filepath.Dir(dirs(f).Revision("u1").EmptyDir("v"))) },
		"its emptyDirs directory": func(f fixture) string { return filepath.Dir(dirs(f).Revision("u1").EmptyDir("v")) },
		"the volume":              func(f fixture) string { return dirs(f).Revision("u1").EmptyDir("v") },
	} {
		f := newFixture(t)
		outside := t.TempDir()
		path := link(f)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(outside, path)); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Setup(t.Context(), podWith(emptyDir("v")), mounting(mountV), pod.Sandbox{}); err == nil {
			t.Errorf("%s: no error", name)
		}
		if left, err := os.ReadDir(outside); err != nil || len(left) != 0 {
			t.Errorf("%s: made %v outside, %v", name, left, err)
		}
	}
}

func TestRefused(t *testing.T) {
	bad := podWith(emptyDir("v"))
	bad.UID = "../../escape"
	for name, c := range map[string]struct {
		pod       *v1.Pod
		container *v1.Container
		reason    string
		want      string
	}{
		"no such volume":  {podWith(), mounting(mountV), "FailedMount", "no such volume"},
		"another kind":    {podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{FC: &v1.FCVolumeSource{}}}), mounting(mountV), "FailedMount", "its kind is not supported"},
		"no plugins":      {podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d"}}}), mounting(mountV), "FailedMount", "podrun runs without --plugins"},
		"medium":          {podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: "Tape"}}}), mounting(mountV), "FailedMount", `medium "Tape" is not supported`},
		"subPathExpr":     {podWith(emptyDir("v")), mounting(v1.VolumeMount{Name: "v", MountPath: "/v", SubPathExpr: "$(X)"}), "CreateContainerConfigError", "the container has no variable $(X)"},
		"device":          {podWith(), &v1.Container{VolumeDevices: []v1.VolumeDevice{{Name: "d"}}}, "FailedMount", "MapVolume.SetUpDevice failed for volume \"d\": the pod has no such volume"},
		"uid as a path":   {bad, mounting(mountV), "FailedMount", "cannot be a directory's name"},
		"name as a path":  {podWith(emptyDir("../../x")), mounting(v1.VolumeMount{Name: "../../x", MountPath: "/v"}), "FailedMount", "cannot be a directory's name"},
		"dots as a name":  {podWith(emptyDir("..")), mounting(v1.VolumeMount{Name: "..", MountPath: "/v"}), "FailedMount", "cannot be a directory's name"},
		"empty as a name": {podWith(emptyDir("")), mounting(v1.VolumeMount{MountPath: "/v"}), "FailedMount", "cannot be a directory's name"},
	} {
		f := newFixture(t)
		got, err := f.Setup(t.Context(), c.pod, c.container, pod.Sandbox{})
		var reason *runtime.ReasonError
		if !errors.As(err, &reason) || reason.Reason != c.reason || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, error %v, want %s: %s", name, got, err, c.reason, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newFixture(t).Setup(ctx, podWith(), mounting(), pod.Sandbox{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
