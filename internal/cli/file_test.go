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

// TestWriteAtomicBesideOthers: another user puts a link, a pipe and a file where root writes, in a directory such as /tmp.
func TestWriteAtomicBesideOthers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("another user's files: needs root")
	}
	dir, elsewhere := filepath.Join(t.TempDir(), "tmp"), t.TempDir()
	must(t, os.Mkdir(dir, 0o777))
	must(t, os.Chmod(dir, 0o777|fs.ModeSticky))
	at := func(name string) string { return filepath.Join(dir, name) }
	precious := filepath.Join(elsewhere, "precious")
	must(t, os.WriteFile(precious, []byte("mine"), 0o600))
	must(t, os.Symlink(precious, at("link")))
	must(t, os.Symlink(filepath.Join(elsewhere, "none"), at("nowhere")))
	must(t, syscall.Mkfifo(at("pipe"), 0o666))
	must(t, os.WriteFile(at("file"), nil, 0o666))
	for _, name := range []string{"link", "nowhere", "pipe", "file"} {
		must(t, os.Lchown(at(name), 1234, 1234))
	}
	secret := func(w io.Writer) error { _, err := io.WriteString(w, "secret"); return err }
	for _, name := range []string{"link", "nowhere", "pipe"} {
		if err := WriteAtomic(at(name), secret); !errors.Is(err, errOthers) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, WriteAtomic(at("file"), secret))
	info, err := os.Lstat(at("file"))
	must(t, err)
	if of := info.Sys().(*syscall.Stat_t); of.Uid != 0 {
		t.Errorf("what is written belongs to %d", of.Uid)
	}
	if got, err := os.ReadFile(precious); err != nil || string(got) != "mine" {
		t.Errorf("%q, %v", got, err)
	}
	if entries, _ := os.ReadDir(elsewhere); len(entries) != 1 {
		t.Errorf("made elsewhere: %v", entries)
	}
	// One's own link there is followed.
	must(t, os.Symlink(precious, at("own")))
	must(t, WriteAtomic(at("own"), secret))
	if got, err := os.ReadFile(precious); err != nil || string(got) != "secret" {
		t.Errorf("%q, %v", got, err)
	}
}
