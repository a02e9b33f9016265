package csi_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/test"
	"podrun.io/podrun/internal/volume/csi"
)

// persistentName is what the file of a PersistentVolume's record has after its pod's UID.
var persistentName = strings.Repeat("0d", 32)

// damage writes a record that cannot be read.
func (m *machine) damage(uid, name string) (file string) {
	m.t.Helper()
	file = filepath.Join(layout.CSIVolumes(m.dirs), uid+"_"+name+".json")
	test.Must(m.t, os.MkdirAll(filepath.Dir(file), 0o700))
	test.Must(m.t, os.WriteFile(file, []byte(`{"driver":`), 0o600))
	return file
}

// TestDamagedRecords: a record that cannot be read stops only what it may be of.
func TestDamagedRecords(t *testing.T) {
	m := staging(t)
	m.request("here") // its pod is on the machine
	files := []string{m.damage("gone", persistentName), m.damage("gone", "v"), m.damage("here", "v")}
	m.published(m.persistent("u1", v1.ReadWriteOncePod))
	m.remove("u1")
	m.calls(1, 1, 1, 1)
	all, err := csi.Records(m.dirs)
	if err == nil || len(all) > 0 {
		t.Errorf("%+v, %v", all, err)
	}
	for _, file := range files {
		if err == nil || !strings.Contains(err.Error(), "reading the record "+file+": unexpected end of JSON input; if that does "+
			"not end, remove the file when no pod has the UID ") {
			t.Errorf("got %v", err)
		}
		test.Must(t, os.Remove(file))
	}
	m.unstaged()
}

// TestDamagedRecordOfAPod: while a PersistentVolume may be that of a pod whose record cannot be read, it is neither
// unstaged nor given to a pod that must be the only one; when that pod is gone, and nothing is mounted for it, it is.
func TestDamagedRecordOfAPod(t *testing.T) {
	m := staging(t)
	m.published(m.persistent("u1"))
	m.request("here")
	file := m.damage("here", persistentName)
	_, err := m.drivers.Publish(t.Context(), m.persistent("u2", v1.ReadWriteOncePod))
	if err == nil || !strings.Contains(err.Error(), "another pod may have it: reading the record "+file) {
		t.Errorf("got %v", err)
	}
	if _, err := csi.PersistentRecords(m.dirs); err == nil {
		t.Error("nothing is said")
	}
	m.remove("u1") // which may be asked for twice, since the record stays until it is unstaged
	if n, unstaged := m.driver.Calls("NodeUnpublishVolume"), m.driver.Calls("NodeUnstageVolume"); n < 1 || unstaged > 0 {
		t.Errorf("unpublished %d times, unstaged %d times", n, unstaged)
	}
	at := filepath.Join(m.kubelet, "pods/here/volumes/kubernetes.io~csi/pv/mount")
	test.Must(t, os.MkdirAll(at, 0o700))
	test.Must(t, unix.Mount("tmpfs", at, "tmpfs", 0, ""))
	test.Must(t, m.drivers.Release(t.Context(), "here")) // which asks for the other one's again
	test.Must(t, os.RemoveAll(m.dirs.Pod(pod.UID("here"))))
	if _, err := csi.PersistentRecords(m.dirs); err == nil {
		t.Error("nothing is said of what is mounted")
	}
	if n := m.driver.Calls("NodeUnstageVolume"); n > 0 {
		t.Errorf("unstaged %d times", n)
	}
	test.Must(t, sys.Unmount(at))
	test.Must(t, os.RemoveAll(filepath.Join(m.kubelet, "pods", "here")))
	test.Eventually(t, "the volume to be unstaged", func() bool { return m.driver.Calls("NodeUnstageVolume") == 1 })
	test.Must(t, os.Remove(file))
	m.await("")
	m.unstaged()
}
