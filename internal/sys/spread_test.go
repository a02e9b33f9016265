package sys

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSpread: on a file system that supports the attribute, the directory gets it and keeps its
// other attributes; on others nothing changes.
func TestSpread(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var kind unix.Statfs_t
	if err := unix.Statfs(dir, &kind); err != nil {
		t.Fatal(err)
	}
	before, _ := attributes(t, dir) // what other file systems answer does not matter
	for range 2 {
		if err := Spread(dir); err != nil {
			t.Fatal(err)
		}
	}
	after, err := attributes(t, dir)
	if kind.Type == unix.EXT4_SUPER_MAGIC && (err != nil || after != before|0x20000) {
		t.Errorf("attributes %#x, before %#x, %v", after, before, err)
	}
	if err := Spread(filepath.Join(dir, "missing")); !os.IsNotExist(err) {
		t.Errorf("missing: %v", err)
	}
	if err := Spread("/proc"); err != nil {
		t.Errorf("where there are no attributes: %v", err)
	}
}

func attributes(t *testing.T, dir string) (int, error) {
	t.Helper()
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	return unix.IoctlGetInt(int(d.Fd()), unix.FS_IOC_GETFLAGS)
}
