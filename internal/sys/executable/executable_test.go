package executable

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"podrun.io/podrun/internal/test"
)

// TestMain: as a copy, the program only ends.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "end" {
		return
	}
	os.Exit(m.Run())
}

// otherDisk returns a directory on another file system than the program.
func otherDisk(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "executable")
	if err != nil {
		t.Skip("there is no other file system:", err)
	}
	t.Cleanup(func() { test.Must(t, os.RemoveAll(dir)) })
	return dir
}

// TestLinkAtOnce: whoever asks for the program, while others do, can run it when Link returns, also where it has to be
// copied, and another one was there.
func TestLinkAtOnce(t *testing.T) {
	for name, dir := range map[string]string{"same disk": t.TempDir(), "another disk": otherDisk(t)} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "bin", "program")
			test.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
			test.Must(t, os.WriteFile(path, []byte("the version before"), 0o755))
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					if err := Link(path); err != nil {
						t.Error(err)
						return
					}
					if out, err := exec.Command(path, "end").CombinedOutput(); err != nil {
						t.Errorf("%v: %s", err, out)
					}
				})
			}
			all.Wait()
			if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}

// TestLinkOfACopy: a copy stays as long as it is one.
func TestLinkOfACopy(t *testing.T) {
	path := filepath.Join(otherDisk(t), "program")
	test.Must(t, Link(path))
	first, err := os.Stat(path)
	test.Must(t, err)
	test.Must(t, Link(path))
	if again, err := os.Stat(path); err != nil || !os.SameFile(first, again) {
		t.Errorf("it was copied again: %v", err)
	}
	whole, err := os.ReadFile(path)
	test.Must(t, err)
	other := bytes.Clone(whole)
	other[len(other)/2]++
	test.Must(t, os.Remove(path))
	test.Must(t, os.WriteFile(path, other, 0o755))
	test.Must(t, Link(path))
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, whole) {
		t.Errorf("another program of the same size stays: %v", err)
	}
}
