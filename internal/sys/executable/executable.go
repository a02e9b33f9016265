// Package executable makes other names of this program: containerd's shim, and what stands in for runc.
//
// Begin reading at Link.
package executable

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys"
)

// program is the file of this program, also when it has been replaced or removed.
const program = "/proc/self/exe"

// Link makes path another name of this program, as a hard link: a program that executes itself
// again does so by the name of its file, which a symbolic link would lose. If a hard link is not
// possible, it copies the file. Running processes keep the file that they were started from. It may be called
// concurrently, also by several processes: one of them makes the file, the others wait for it.
func Link(path string) error {
	now, err := os.Stat(program)
	if err != nil {
		return err
	}
	if sameProgram(path, now) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	lock, err := sys.LockExisting(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer lock.Unlock()
	if sameProgram(path, now) {
		return nil
	}
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := unix.Linkat(unix.AT_FDCWD, program, unix.AT_FDCWD, tmp, unix.AT_SYMLINK_FOLLOW); err != nil {
		// Another file system, a removed program file, or a kernel that forbids hard links.
		if err := copyProgram(tmp); err != nil {
			os.Remove(tmp)
			return fmt.Errorf("copying the program: %w", err)
		}
	}
	return os.Rename(tmp, path)
}

// copies are copies of this program: how each file was when it was compared, by path.
var copies sync.Map

// sameProgram reports whether path is this program or a copy of it. It does not compare times of change:
// packages and images often give every build the same one.
func sameProgram(path string, now os.FileInfo) bool {
	old, err := os.Lstat(path)
	if err != nil || !old.Mode().IsRegular() || old.Size() != now.Size() {
		return false
	}
	if os.SameFile(old, now) {
		return true
	}
	st := old.Sys().(*syscall.Stat_t)
	is := [...]uint64{st.Dev, st.Ino, uint64(st.Ctim.Sec), uint64(st.Ctim.Nsec)}
	if was, ok := copies.Load(path); ok && was == is {
		return true
	}
	same := sameContent(path, program)
	if same {
		copies.Store(path, is)
	}
	return same
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
	src, err := os.Open(program)
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
