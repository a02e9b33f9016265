package sys

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadSettings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, link, fifo := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := errors.Join(
		os.WriteFile(file, []byte("text"), 0o600), os.Symlink("file", link), unix.Mkfifo(fifo, 0o600),
	); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link} {
		if got, err := ReadSettings(path); err != nil || string(got) != "text" {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	for path, want := range map[string]error{
		fifo: ErrNotRegular, "/dev/zero": ErrNotRegular, dir: unix.EISDIR, filepath.Join(dir, "none"): os.ErrNotExist,
	} {
		if _, err := ReadSettings(path); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}
