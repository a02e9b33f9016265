package embedded

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"podrun.io/podrun/internal/sys/executable"
)

// TestInstallShim: whatever is at the path, the shim is there afterwards; one that is there already is left alone, because
// shims run from it.
func TestInstallShim(t *testing.T) {
	if len(shimProgram) == 0 {
		t.Skip("built without the shim's program (make test builds with it)")
	}
	path := filepath.Join(t.TempDir(), "bin", "containerd-shim-runc-v2")
	install := func() (os.FileInfo, []byte) {
		t.Helper()
		if err := installShim(path); err != nil {
			t.Fatal(err)
		}
		st, err := os.Lstat(path)
		if err != nil || st.Mode() != 0o755 {
			t.Fatalf("%v, %v", st, err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return st, text
	}
	first, program := install()
	if second, _ := install(); !os.SameFile(first, second) {
		t.Error("the same shim was written again")
	}
	for name, change := range map[string]func() error{
		"cut off":        func() error { return os.Truncate(path, 1<<20) },
		"empty":          func() error { return os.Truncate(path, 0) },
		"not executable": func() error { return os.Chmod(path, 0o644) },
		"a link":         func() error { return errors.Join(os.Rename(path, path+".1"), os.Symlink(path+".1", path)) },
		"an older podrun": func() error {
			return errors.Join(os.Remove(path), executable.Link(path))
		},
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if _, got := install(); !bytes.Equal(got, program) {
			t.Errorf("%s: %d bytes afterwards, want %d", name, len(got), len(program))
		}
	}

	// Where there is no space for it, podrun itself is the shim.
	if err := errors.Join(os.Remove(path), os.MkdirAll(path+".tmp/full", 0o700), installShim(path)); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.Stat(exe)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.Stat(path); err != nil || got.Size() != want.Size() {
		t.Errorf("%v, %v", got, err)
	}
	if err := os.RemoveAll(path + ".tmp"); err != nil {
		t.Fatal(err)
	}
	if _, got := install(); !bytes.Equal(got, program) {
		t.Error("it is not installed when there is space again")
	}

	// Processes keep the file that they run from: it is replaced, never written.
	old, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := old.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if after, _ := install(); os.SameFile(before, after) {
		t.Error("the file of running shims was written")
	}
}

// TestDamagedShim: a program that is not what the build put in is an error, and what is there stays.
func TestDamagedShim(t *testing.T) {
	before := shimProgram
	defer func() { shimProgram = before }()
	path := filepath.Join(t.TempDir(), "containerd-shim-runc-v2")
	if err := os.WriteFile(path, []byte("another one"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, damaged := range [][]byte{[]byte("short"), bytes.Repeat([]byte("x"), 100), append(bytes.Clone(before), 0)} {
		if len(damaged) == 1 {
			continue // built without it
		}
		shimProgram = damaged
		if err := installShim(path); err == nil {
			t.Errorf("%d bytes are no error", len(damaged))
		}
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "another one" {
		t.Errorf("%q, %v", text, err)
	}
}
