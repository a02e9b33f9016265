package embedded

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const self = "/proc/self/exe"

// linkShim makes path this very program under the shim's name: a hard link, as the shim runs itself again
// by the name of its file, which a symbolic link would lose. Where a link is not possible it is a copy.
// Running shims keep the program that they were started from.
func linkShim(path string) error {
	now, err := os.Stat(self)
	if err != nil {
		return err
	}
	if old, err := os.Lstat(path); err == nil && sameProgram(old, now) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := unix.Linkat(unix.AT_FDCWD, self, unix.AT_FDCWD, tmp, unix.AT_SYMLINK_FOLLOW); err != nil {
		// Another file system, a removed program or a kernel that forbids it.
		if err := copyProgram(tmp, now); err != nil {
			os.Remove(tmp)
			return fmt.Errorf("copying the shim: %w", err)
		}
	}
	return os.Rename(tmp, path)
}

// sameProgram reports whether old is now, or the copy that copyProgram made of it.
func sameProgram(old, now os.FileInfo) bool {
	return os.SameFile(old, now) ||
		old.Mode().IsRegular() && old.Size() == now.Size() && old.ModTime().Equal(now.ModTime())
}

// copyProgram copies this program and its modification time, by which it is known again. The time is set
// last and after the content is on disk, so that a half-written copy is never taken for the program.
func copyProgram(to string, now os.FileInfo) error {
	src, err := os.Open(self)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	if err == nil {
		err = dst.Sync()
	}
	if cerr := dst.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Chtimes(to, now.ModTime(), now.ModTime())
}
