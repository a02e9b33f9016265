package sys

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDirectoryOfAnother: OwnDir rejects a directory that another user created.
func TestDirectoryOfAnother(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "missing")} {
		if err := OwnDir(path); err != nil {
			t.Error(err)
		}
	}
	if err := os.Chown(dir, 1234, 1234); err != nil {
		t.Skip("needs root:", err)
	}
	if err := OwnDir(dir); err == nil {
		t.Error("another's directory is taken")
	}
}
