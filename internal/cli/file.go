package cli

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// WriteAtomic replaces the file that path leads to. It writes a temporary file in the same directory
// and renames it, so that readers never see a partial file. It follows symbolic links. A path that
// is not a regular file, such as /dev/stdout or a pipe, is written to directly.
func WriteAtomic(path string, write func(io.Writer) error) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	}
	for range 40 { // the kernel follows at most 40 links
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Dir(path) + "/" + target // not cleaned, because links change the meaning of ".."
		}
		path = target
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	mode := fs.FileMode(0o644)
	if info != nil {
		mode = info.Mode().Perm()
		if was, is := info.Sys().(*syscall.Stat_t); is {
			_ = f.Chown(int(was.Uid), int(was.Gid)) // fails unless the user is root
		}
	}
	if err := errors.Join(write(f), f.Chmod(mode), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
