package csi_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/test"
)

// TestBlock: two pods have one device, which is attached once, and has what was written to it.
func TestBlock(t *testing.T) {
	m := staging(t)
	m.block = true
	a, b := m.published(m.persistent("u1")), m.published(m.persistent("u2"))
	m.calls(1, 2, 0, 0)
	if want := filepath.Join(m.kubelet, "plugins/kubernetes.io/csi/volumeDevices/publish/pv/u1"); a.Path != want || !a.Block {
		t.Errorf("%+v, want a device at %s", a, want)
	}
	var r spec.NodePublishVolumeRequest
	m.last("NodePublishVolume", &r)
	if c := r.GetVolumeCapability(); c.GetBlock() == nil || c.GetMount() != nil || c.GetAccessMode().GetMode() != spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER {
		t.Errorf("published %v", &r)
	}
	test.Must(t, os.WriteFile(a.Path, []byte("text"), 0))
	f, err := os.Open(b.Path)
	test.Must(t, err)
	defer f.Close()
	text := make([]byte, 4)
	if _, err := f.Read(text); err != nil || string(text) != "text" {
		t.Errorf("the other pod reads %q, %v", text, err)
	}
	if m.owned.Load() != 0 {
		t.Error("a device was given to a group")
	}
	// Another podrun, and a driver that was restarted.
	m.stop()
	m.kill()
	m.start()
	if again := m.published(m.persistent("u1")); again != a {
		t.Errorf("%+v, and %+v before", again, a)
	}
	m.serve()
	m.registered()
	if err := m.drivers.Release(t.Context(), "u1"); err != nil {
		t.Error(err)
	}
	m.remove("u1")
	m.await("u2 published=true released=false")
	m.remove("u2")
	m.await("")
	m.calls(1, 2, 2, 1)
	m.unstaged()
}

// TestStaleDevice: a node that is left from before the machine's restart may be another device's.
func TestStaleDevice(t *testing.T) {
	m := staging(t)
	m.block = true
	p := m.published(m.persistent("u1"))
	m.stop()
	records, err := filepath.Glob(filepath.Join(layout.CSIVolumes(m.dirs), "*"))
	test.Must(t, err)
	text, err := os.ReadFile(records[0])
	test.Must(t, err)
	at := bytes.Index(text, []byte(`"boot":"`)) + len(`"boot":"`)
	copy(text[at:], "00000000")
	test.Must(t, os.WriteFile(records[0], text, 0o600))
	// What the node leads to now is nobody's.
	test.Must(t, os.Remove(p.Path))
	test.Must(t, unix.Mknod(p.Path, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 250))))
	if _, _, err := m.drivers.Retained("u1", "claim"); err == nil {
		t.Error("the device of a former boot is the pod's")
	}
	m.start()
	if again := m.published(m.persistent("u1")); again != p {
		t.Errorf("%+v, and %+v before", again, p)
	}
	var is unix.Stat_t
	test.Must(t, unix.Stat(p.Path, &is))
	if unix.Minor(is.Rdev) == 250 {
		t.Error("the node is that of the former boot")
	}
	m.calls(2, 2, 1, 1)
	m.remove("u1")
	m.await("")
	m.unstaged()
}

// TestNoDevice: what is no device at the target is none: the driver makes one anew.
func TestNoDevice(t *testing.T) {
	for name, leave := range map[string]func(at string) error{
		"a link to a device": func(at string) error { return os.Symlink("/dev/loop0", at) },
		"a file":             func(at string) error { return os.WriteFile(at, []byte("content"), 0o600) },
		"a directory":        func(at string) error { return os.Mkdir(at, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			m := staging(t)
			m.block = true
			p := m.published(m.persistent("u1"))
			test.Must(t, os.Remove(p.Path))
			test.Must(t, leave(p.Path))
			var is unix.Stat_t
			if again := m.published(m.persistent("u1")); again != p || unix.Lstat(p.Path, &is) != nil || is.Mode&unix.S_IFMT != unix.S_IFBLK {
				t.Errorf("published %+v, mode %o", again, is.Mode)
			}
			m.calls(2, 2, 1, 1)
			m.remove("u1")
			m.await("")
			m.unstaged()
		})
	}
}
