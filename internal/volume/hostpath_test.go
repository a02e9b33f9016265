package volume

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

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
