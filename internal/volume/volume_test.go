package volume

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/layout"
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
	f.Volumes = New(Options{Dirs: layout.Dirs{Root: f.root}, HostRoot: f.host})
	return f
}

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
	dirs := layout.Dirs{Root: f.root}
	want := []runtime.Mount{
		{HostPath: dirs.EmptyDir("u1", "a"), ContainerPath: "/data"},
		{HostPath: dirs.EmptyDir("u1", "a"), ContainerPath: "/again"},
		{HostPath: dirs.Etc("u1") + "/hostname", ContainerPath: "/etc/hostname", Managed: true},
		{HostPath: dirs.Etc("u1") + "/resolv.conf", ContainerPath: "/etc/resolv.conf", Managed: true},
		{HostPath: dirs.EmptyDir("u1", "none"), ContainerPath: "/etc/hosts"},
		{HostPath: dirs.EmptyDir("u1", "b"), ContainerPath: "/data/deep/b", ReadOnly: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

func TestEmptyDirIsSharedAndKept(t *testing.T) {
	f := newFixture(t)
	p := podWith(emptyDir("v"))
	dir := layout.Dirs{Root: f.root}.EmptyDir("u1", "v")
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

// TestEmptyDirNotLedAstray: symbolic links in the pod's directory lead nothing out of it.
func TestEmptyDirNotLedAstray(t *testing.T) {
	dirs := func(f fixture) layout.Dirs { return layout.Dirs{Root: f.root} }
	for name, link := range map[string]func(f fixture) string{
		"the pod's directory":     func(f fixture) string { return dirs(f).Pod("u1") },
		"its volumes' directory":  func(f fixture) string { return filepath.Dir(filepath.Dir(dirs(f).EmptyDir("u1", "v"))) },
		"its emptyDirs directory": func(f fixture) string { return filepath.Dir(dirs(f).EmptyDir("u1", "v")) },
		"the volume":              func(f fixture) string { return dirs(f).EmptyDir("u1", "v") },
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

// TestEtcNotLedAstray: the same for the files under /etc.
func TestEtcNotLedAstray(t *testing.T) {
	f := newFixture(t)
	etc := layout.Dirs{Root: f.root}.Etc("u1")
	outside := filepath.Join(t.TempDir(), "precious")
	if err := errors.Join(os.WriteFile(outside, []byte("mine"), 0o600), os.MkdirAll(etc, 0o755), os.Symlink(outside, etc+"/hosts")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Setup(t.Context(), podWith(), mounting(), pod.Sandbox{}); err == nil {
		t.Error("no error")
	}
	if b, err := os.ReadFile(outside); err != nil || string(b) != "mine" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestHostPathKinds(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := errors.Join(os.Symlink(file, dir+"/link"), os.Symlink(dir+"/gone", dir+"/dangling")); err != nil {
		t.Fatal(err)
	}
	const failed = `MountVolume.SetUp failed for volume "v": hostPath type check failed: `
	for _, c := range []struct {
		path string
		kind v1.HostPathType
		want string // the error; "" = none
	}{
		{dir, v1.HostPathUnset, ""},
		{file, v1.HostPathUnset, ""},
		{"/dev/null", v1.HostPathUnset, ""},
		{dir, v1.HostPathDirectory, ""},
		{file, v1.HostPathDirectory, file + " is not a directory"},
		{dir + "/no", v1.HostPathDirectory, dir + "/no does not exist, wanted a directory"},
		{dir, v1.HostPathDirectoryOrCreate, ""},
		{file, v1.HostPathDirectoryOrCreate, file + " is not a directory"},
		{file, v1.HostPathFile, ""},
		{dir + "/link", v1.HostPathFile, ""},
		{dir + "/dangling", v1.HostPathFile, dir + "/dangling does not exist, wanted a file"},
		{dir, v1.HostPathFile, dir + " is not a file"},
		{dir + "/no", v1.HostPathFile, dir + "/no does not exist, wanted a file"},
		{file, v1.HostPathFileOrCreate, ""},
		{dir, v1.HostPathFileOrCreate, dir + " is not a file"},
		{dir + "/no/file", v1.HostPathFileOrCreate, "open " + dir + "/no/file: no such file or directory"},
		{socket, v1.HostPathSocket, ""},
		{file, v1.HostPathSocket, file + " is not a socket file"},
		{"/dev/null", v1.HostPathCharDev, ""},
		{file, v1.HostPathCharDev, file + " is not a character device"},
		{"/dev/null", v1.HostPathBlockDev, "/dev/null is not a block device"},
		{file + "/x", v1.HostPathFile, "stat " + file + "/x: not a directory"},
		{file, "Door", file + ` is not of a type that is known: "Door"`},
	} {
		f := newFixture(t)
		got, err := f.Setup(t.Context(), podWith(hostPath(c.path, c.kind)), mounting(mountV), pod.Sandbox{})
		if c.want == "" {
			if err != nil || got[0].HostPath != c.path || got[0].ContainerPath != "/v" {
				t.Errorf("%s as %q: %+v, %v", c.path, c.kind, got, err)
			}
			continue
		}
		var reason *runtime.ReasonError
		if !errors.As(err, &reason) || reason.Reason != "FailedMount" || err.Error() != failed+c.want {
			t.Errorf("%s as %q: error %v, want %s", c.path, c.kind, err, c.want)
		}
	}
}

func TestHostPathBlockDevice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "block")
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 200))); err != nil {
		t.Skipf("cannot make a device node: %v", err)
	}
	f := newFixture(t)
	if _, err := f.Setup(t.Context(), podWith(hostPath(path, v1.HostPathBlockDev)), mounting(mountV), pod.Sandbox{}); err != nil {
		t.Error(err)
	}
	if _, err := f.Setup(t.Context(), podWith(hostPath(path, v1.HostPathCharDev)), mounting(mountV), pod.Sandbox{}); err == nil {
		t.Error("a block device passes as a character device")
	}
}

func TestHostPathIsMadeWhereTheTypeSaysSo(t *testing.T) {
	for _, c := range []struct {
		name string
		kind v1.HostPathType
		want os.FileMode
	}{
		{"a/b", v1.HostPathUnset, os.ModeDir | 0o755},
		{"a/b", v1.HostPathDirectoryOrCreate, os.ModeDir | 0o755},
		{"file", v1.HostPathFileOrCreate, 0o644},
	} {
		f := newFixture(t)
		path := filepath.Join(t.TempDir(), c.name)
		for range 2 {
			if _, err := f.Setup(t.Context(), podWith(hostPath(path, c.kind)), mounting(mountV), pod.Sandbox{}); err != nil {
				t.Fatal(err)
			}
			if m := mode(t, path); m != c.want {
				t.Errorf("%q: mode %v, want %v", c.kind, m, c.want)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	propagation, recursive := v1.MountPropagationHostToContainer, v1.RecursiveReadOnlyEnabled
	bad := podWith(emptyDir("v"))
	bad.UID = "../../escape"
	for name, c := range map[string]struct {
		pod       *v1.Pod
		container *v1.Container
		want      string
	}{
		"no such volume":  {podWith(), mounting(mountV), "no such volume"},
		"another kind":    {podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}}), mounting(mountV), "only emptyDir and hostPath"},
		"memory":          {podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}}), mounting(mountV), `medium "Memory" is not supported`},
		"subPath":         {podWith(emptyDir("v")), mounting(v1.VolumeMount{Name: "v", MountPath: "/v", SubPath: "x"}), "subPath is not supported"},
		"subPathExpr":     {podWith(emptyDir("v")), mounting(v1.VolumeMount{Name: "v", MountPath: "/v", SubPathExpr: "$(X)"}), "subPath is not supported"},
		"propagation":     {podWith(emptyDir("v")), mounting(v1.VolumeMount{Name: "v", MountPath: "/v", MountPropagation: &propagation}), "mountPropagation HostToContainer"},
		"recursive":       {podWith(emptyDir("v")), mounting(v1.VolumeMount{Name: "v", MountPath: "/v", RecursiveReadOnly: &recursive}), "recursiveReadOnly Enabled"},
		"device":          {podWith(), &v1.Container{VolumeDevices: []v1.VolumeDevice{{Name: "d"}}}, "volumeDevices are not supported"},
		"uid as a path":   {bad, mounting(mountV), "cannot be a directory's name"},
		"name as a path":  {podWith(emptyDir("../../x")), mounting(v1.VolumeMount{Name: "../../x", MountPath: "/v"}), "cannot be a directory's name"},
		"dots as a name":  {podWith(emptyDir("..")), mounting(v1.VolumeMount{Name: "..", MountPath: "/v"}), "cannot be a directory's name"},
		"empty as a name": {podWith(emptyDir("")), mounting(v1.VolumeMount{MountPath: "/v"}), "cannot be a directory's name"},
	} {
		f := newFixture(t)
		got, err := f.Setup(t.Context(), c.pod, c.container, pod.Sandbox{})
		var reason *runtime.ReasonError
		if !errors.As(err, &reason) || reason.Reason != "FailedMount" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, error %v, want %s", name, got, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newFixture(t).Setup(ctx, podWith(), mounting(), pod.Sandbox{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// etc returns what the pod's file holds after a Setup.
func (f fixture) etc(t *testing.T, p *v1.Pod, ips []string, name string) string {
	t.Helper()
	mounts, err := f.Setup(t.Context(), p, mounting(), pod.Sandbox{IPs: ips})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		if m.ContainerPath == "/etc/"+name {
			b, err := os.ReadFile(m.HostPath)
			if err != nil {
				t.Fatal(err)
			}
			if perm := mode(t, m.HostPath); perm != 0o644 {
				t.Errorf("%s has mode %v", name, perm)
			}
			return string(b)
		}
	}
	t.Fatalf("no %s among %+v", name, mounts)
	return ""
}

func TestEtcOfAPod(t *testing.T) {
	f := newFixture(t)
	f.put(t, "etc/resolv.conf", "search example.org\nnameserver 192.0.2.53\n")
	p := podWith()
	hosts := f.etc(t, p, []string{"10.64.0.2", "fd00::2"}, "hosts")
	for _, line := range []string{"127.0.0.1\tlocalhost\n", "::1\tlocalhost ip6-localhost ip6-loopback\n", "\n10.64.0.2\tweb-node1\nfd00::2\tweb-node1\n"} {
		if !strings.Contains(hosts, line) {
			t.Errorf("%q is not in %s", line, hosts)
		}
	}
	if !strings.HasPrefix(hosts, "# Written by podrun") {
		t.Errorf("no header in %s", hosts)
	}
	if got := f.etc(t, p, nil, "hostname"); got != "web-node1\n" {
		t.Errorf("hostname %q", got)
	}
	if got := f.etc(t, p, nil, "resolv.conf"); got != "search example.org\nnameserver 192.0.2.53\n" {
		t.Errorf("resolv.conf %q", got)
	}
}

func TestEtcWithHostNetwork(t *testing.T) {
	f := newFixture(t)
	f.put(t, "etc/hosts", "127.0.0.1 localhost\n192.0.2.2 thishost\n")
	f.put(t, "etc/resolv.conf", "nameserver 127.0.0.53\n")
	f.put(t, "run/systemd/resolve/resolv.conf", "nameserver 192.0.2.53\n")
	p := podWith()
	p.Spec.HostNetwork = true
	if got, want := f.etc(t, p, nil, "hosts"), header+"127.0.0.1 localhost\n192.0.2.2 thishost\n"; got != want {
		t.Errorf("hosts %q", got)
	}
	name, err := os.Hostname()
	if got := f.etc(t, p, nil, "hostname"); err != nil || got != name+"\n" {
		t.Errorf("hostname %q, %v", got, err)
	}
	if got := f.etc(t, p, nil, "resolv.conf"); got != "nameserver 127.0.0.53\n" {
		t.Errorf("resolv.conf %q", got)
	}
}

func TestResolvConfBehindLoopback(t *testing.T) {
	const behind = "nameserver 192.0.2.53\n"
	for _, c := range []struct {
		conf    string
		resolve bool
		want    string
	}{
		{"nameserver 127.0.0.53\noptions edns0\n", true, behind},
		{"nameserver 127.0.0.53\nnameserver ::1\n", true, behind},
		{"nameserver ::ffff:127.0.0.1\n", true, behind},
		{"nameserver 127.0.0.53\n", false, "nameserver 127.0.0.53\n"},
		{"nameserver 127.0.0.1\nnameserver 192.0.2.1\n", true, "nameserver 127.0.0.1\nnameserver 192.0.2.1\n"},
		{"nameserver fe80::1%eth0\n", true, "nameserver fe80::1%eth0\n"},
		{"#nameserver 127.0.0.1\n", true, "#nameserver 127.0.0.1\n"},
		{"", true, ""},
	} {
		f := newFixture(t)
		f.put(t, "etc/resolv.conf", c.conf)
		if c.resolve {
			f.put(t, "run/systemd/resolve/resolv.conf", behind)
		}
		if got := f.etc(t, podWith(), nil, "resolv.conf"); got != c.want {
			t.Errorf("%q gives %q, want %q", c.conf, got, c.want)
		}
	}
}

// TestEtcKeepsItsInode: a running container has the file mounted and must see the new address.
func TestEtcKeepsItsInode(t *testing.T) {
	f := newFixture(t)
	p := podWith()
	stat := func() (st syscall.Stat_t) {
		if err := syscall.Stat(layout.Dirs{Root: f.root}.Etc("u1")+"/hosts", &st); err != nil {
			t.Fatal(err)
		}
		return st
	}
	f.etc(t, p, []string{"10.64.15.254"}, "hosts")
	first := stat()
	f.etc(t, p, []string{"10.64.15.254"}, "hosts")
	if again := stat(); again.Mtim != first.Mtim {
		t.Error("written though nothing has changed")
	}
	hosts := f.etc(t, p, []string{"10.64.0.3"}, "hosts")
	if !strings.HasSuffix(hosts, "\n10.64.0.3\tweb-node1\n") || strings.Contains(hosts, "10.64.15.254") {
		t.Errorf("hosts %q", hosts)
	}
	if now := stat(); now.Ino != first.Ino {
		t.Error("the file was replaced")
	}
}

func TestEtcReadOnlyWithItsRoot(t *testing.T) {
	f := newFixture(t)
	yes := true
	c := &v1.Container{SecurityContext: &v1.SecurityContext{ReadOnlyRootFilesystem: &yes}}
	mounts, err := f.Setup(t.Context(), podWith(), c, pod.Sandbox{})
	if err != nil || len(mounts) != 3 {
		t.Fatal(mounts, err)
	}
	for _, m := range mounts {
		if !m.ReadOnly {
			t.Errorf("%s can be written", m.ContainerPath)
		}
	}
}
