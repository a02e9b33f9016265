// Package sys is what podrun takes from the machine as it is: the boot id, locks between processes on
// a directory, and files replaced as a whole. It owns no directory; its users say where.
package sys

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// BootID returns the kernel's boot id: it changes with every boot, and only then.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// WriteFile replaces the file at path as a whole: a reader sees the old content or the new. It leaves
// path+".tmp" behind when it is cut off, and reuses that name; who writes it has it locked, so that any number of
// processes may write at a time, and one of them is the last.
func WriteFile(path string, data []byte, mode os.FileMode) error {
	tmp, err := lockNew(path+".tmp", mode)
	if err != nil {
		return err
	}
	defer tmp.Close()
	if err := tmp.Truncate(0); err != nil { // what was cut off
		return err
	}
	if _, err := tmp.Write(data); err != nil {
		return err
	}
	if err := tmp.Chmod(mode); err != nil { // the umask took bits away
		return err
	}
	return os.Rename(path+".tmp", path)
}

// lockNew opens and locks the file that is at path, after making it if need be.
func lockNew(path string, mode os.FileMode) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, mode)
		if err != nil {
			return nil, err
		}
		if err = flock(f, unix.LOCK_EX); err == nil {
			var here bool
			if here, err = isAt(f, path); here {
				return f, nil
			}
		}
		f.Close()
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
}

// Lock is an exclusive lock on a directory, between processes and within one.
type Lock struct{ dir *os.File }

// LockDir makes the directory if it is not there, locks it and waits as long as another holds it. The
// directory itself is the lock, so a room whose last user removes its directory leaves no lock file;
// whoever waited then makes a new one.
func LockDir(path string, mode os.FileMode) (*Lock, error) {
	for {
		if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
		lock, err := LockExisting(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		return lock, err
	}
}

// LockExisting is LockDir for a directory that may be missing: the error is then os.ErrNotExist.
func LockExisting(path string) (*Lock, error) { return lockExisting(path, unix.LOCK_EX) }

func lockExisting(path string, how int) (*Lock, error) {
	for {
		d, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return nil, err
		}
		if err := flock(d, how); err != nil {
			d.Close()
			return nil, err
		}
		same, err := isAt(d, path)
		if err == nil && same {
			return &Lock{dir: d}, nil
		}
		d.Close()
		if err != nil {
			return nil, err
		}
	}
}

// Unlock lets the next one in. The directory may have been removed meanwhile.
func (l *Lock) Unlock() {
	// Explicitly, because a child between fork and exec still shares the open file.
	_ = flock(l.dir, unix.LOCK_UN)
	l.dir.Close()
}

// ErrLocked says that somebody holds a lock.
var ErrLocked = errors.New("locked by another")

// TryLockDir is LockDir that does not wait: the error is then ErrLocked.
func TryLockDir(path string, mode os.FileMode) (*Lock, error) {
	for {
		if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
		lock, err := TryLockExisting(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // whoever had it was just done
		}
		return lock, err
	}
}

// TryLockExisting is LockExisting that does not wait: the error is then ErrLocked.
func TryLockExisting(path string) (*Lock, error) {
	lock, err := lockExisting(path, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, ErrLocked
	}
	return lock, err
}

// Path is where the locked directory was.
func (l *Lock) Path() string { return l.dir.Name() }

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if err == nil {
			return nil
		}
		if err != unix.EINTR {
			return &os.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
	}
}

// Elsewhere reports that the path does not lead to the opened file or directory any more: it was removed, or replaced.
func Elsewhere(f *os.File, path string) bool {
	there, err := isAt(f, path)
	return errors.Is(err, os.ErrNotExist) || err == nil && !there
}

// isAt reports that the path still leads to the opened file or directory.
func isAt(d *os.File, path string) (bool, error) {
	opened, err := d.Stat()
	if err != nil {
		return false, err
	}
	now, err := os.Lstat(path)
	if err != nil {
		return false, err
	}
	return os.SameFile(opened, now), nil
}

// Inode is the number of a file's inode.
func Inode(info os.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}
