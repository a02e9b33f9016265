package sys

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestParent: Parent works whatever the program's name is.
func TestParent(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip(err)
	}
	name := filepath.Join(t.TempDir(), "a) Z 1 (")
	if err := os.Symlink(sleep, name); err != nil {
		t.Fatal(err)
	}
	child := exec.Command(name, "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := child.Process.Pid
	if parent, err := Parent(pid); err != nil || parent != os.Getpid() {
		t.Errorf("%d, %v, want %d", parent, err, os.Getpid())
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	if parent, err := Parent(pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a process that is gone: %d, %v", parent, err)
	}
}
