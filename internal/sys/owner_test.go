package sys

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDirectoryOfAnother: MkdirOwn rejects a directory that another user created, and does not
// change it.
func TestDirectoryOfAnother(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing", "one")
	for _, path := range []string{dir, missing, missing} {
		if err := MkdirOwn(path, 0o700); err != nil {
			t.Error(err)
		}
	}
	if info, err := os.Stat(missing); err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.Chown(dir, 1234, 1234); err != nil {
		t.Skip("needs root:", err)
	}
	before, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := MkdirOwn(dir, 0o711); err == nil {
		t.Error("another's directory is taken")
	}
	if after, err := os.Stat(dir); err != nil || after.Mode() != before.Mode() {
		t.Errorf("%v, %v", after, err)
	}
}
