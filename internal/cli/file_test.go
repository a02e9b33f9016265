package cli

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestWriteAtomic: a file is replaced atomically, also through a link; a path that is not a regular
// file is not replaced.
func TestWriteAtomic(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, link, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	must(t, os.Symlink("file", link))
	must(t, syscall.Mkfifo(pipe, 0o600))
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0)
	must(t, err)
	defer reader.Close()
	says := func(text string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
	}
	for _, text := range []string{"one", "two"} { // first through a link that leads to nothing yet
		must(t, WriteAtomic(link, says(text)))
		if got, err := os.ReadFile(file); err != nil || string(got) != text {
			t.Errorf("%q %v, want %q", got, err, text)
		}
	}
	must(t, WriteAtomic(file, says("three")))
	if got, err := os.ReadFile(link); err != nil || string(got) != "three" {
		t.Errorf("%q %v", got, err)
	}
	must(t, WriteAtomic(pipe, says("four")))
	got := make([]byte, len("four"))
	if _, err := io.ReadFull(reader, got); err != nil || string(got) != "four" {
		t.Errorf("%q %v", got, err)
	}
	if err := WriteAtomic(file, func(io.Writer) error { return errors.New("cut off") }); err == nil {
		t.Error("a failure is not reported")
	}
	for path, kind := range map[string]fs.FileMode{file: 0, link: fs.ModeSymlink, pipe: fs.ModeNamedPipe} {
		if info, err := os.Lstat(path); err != nil || info.Mode().Type() != kind {
			t.Errorf("%s is now %v %v", path, info, err)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 3 {
		t.Errorf("left behind: %v", entries)
	}
}
