package sys

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const self = "/proc/self/exe"

// LinkSelf makes path another name of this program, as a hard link: a program that executes itself
// again does so by the name of its file, which a symbolic link would lose. If a hard link is not
// possible, it copies the file. Running processes keep the file that they were started from.
func LinkSelf(path string) error {
	now, err := os.Stat(self)
	if err != nil {
		return err
	}
	if sameProgram(path, now) {
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
		// Another file system, a removed program file, or a kernel that forbids hard links.
		if err := copyProgram(tmp); err != nil {
			os.Remove(tmp)
			return fmt.Errorf("copying the program: %w", err)
		}
	}
	return os.Rename(tmp, path)
}

// sameProgram reports whether path is this program or a copy of it. It does not compare times:
// packages and images often give every build the same one.
func sameProgram(path string, now os.FileInfo) bool {
	old, err := os.Lstat(path)
	if err != nil || !old.Mode().IsRegular() || old.Size() != now.Size() {
		return false
	}
	return os.SameFile(old, now) || sameContent(path, self)
}

func sameContent(a, b string) bool {
	fa, err := os.Open(a)
	if err != nil {
		return false
	}
	defer fa.Close()
	fb, err := os.Open(b)
	if err != nil {
		return false
	}
	defer fb.Close()
	const chunk = 1 << 20
	bufA, bufB := make([]byte, chunk), make([]byte, chunk)
	for {
		n, errA := io.ReadFull(fa, bufA)
		m, errB := io.ReadFull(fb, bufB)
		if !bytes.Equal(bufA[:n], bufB[:m]) {
			return false
		}
		if errA != nil || errB != nil {
			return atEnd(errA) && atEnd(errB)
		}
	}
}

func atEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// copyProgram copies this program. The copy is synced to disk before it gets its name.
func copyProgram(to string) error {
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
	return err
}
