// Package sys contains small helpers for the operating system, for use by podrun's other packages:
// the boot ID, locks between processes, atomic file replacement, mounts, external programs,
// processes and threads, SELinux labels, the machine's resource usage, and access to files and
// directory trees that containers can change.
//
// It owns no directory and knows nothing about pods or containers; its callers pass the paths.
// Begin reading at OpenRegular and WalkTree for files of containers, at Lock for locks, and at
// Program for external programs.
package sys

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// BootID returns the kernel's boot ID, which changes with every boot and only then.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Sleep waits for d, or until ctx ends and returns its error.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// WriteFile replaces the file at path atomically: a reader sees either the old content or the new, also after a loss of
// power. If it is interrupted it leaves path+".tmp" behind, and the next call reuses that file. The temporary file is
// locked while it is written, so any number of processes may call WriteFile at the same time; the last one wins.
func WriteFile(path string, data []byte, mode os.FileMode) error {
	return write(path, data, mode, inOrder)
}

// ReplaceFile is WriteFile for what is of this boot alone. It does not wait for the disk: after a loss of power the
// file may be empty or cut off, which its readers must treat as no file.
func ReplaceFile(path string, data []byte, mode os.FileMode) error {
	return write(path, data, mode, func(*os.File) error { return nil })
}

// inOrder writes a file's content before its next name is written: XFS, also below an overlay, may write the name long
// before, and the file is empty after a loss of power. On ext4 and XFS it is enough that the content is with the disk,
// which takes a third of the time of a sync, or less; overlayfs does nothing then.
func inOrder(f *os.File) error {
	var on unix.Statfs_t
	err := unix.Fstatfs(int(f.Fd()), &on)
	if err == nil && (on.Type == unix.EXT4_SUPER_MAGIC || on.Type == unix.XFS_SUPER_MAGIC) {
		const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
		err = unix.SyncFileRange(int(f.Fd()), 0, 0, all)
		if err == nil || !errors.Is(err, unix.ENOSYS) {
			return err
		}
	}
	return f.Sync()
}

// RemoveDurable removes a file so that it stays removed after a loss of power. That there is none is no error.
func RemoveDurable(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return SyncRemoved(path)
}

// SyncRemoved makes what is not at path stay removed after a loss of power, whoever removed it: a call that failed, or
// was killed, may not have synced it. Of a directory that is gone too, the removal is synced.
func SyncRemoved(path string) error {
	for {
		path = filepath.Dir(path)
		if err := SyncDir(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}

// WriteDurable is WriteFile for content that must survive a loss of power once it returns.
func WriteDurable(path string, data []byte, mode os.FileMode) error {
	if err := write(path, data, mode, (*os.File).Sync); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes the names in a directory survive a loss of power, where the file system can do that.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return SyncOpen(dir)
}

// SyncOpen is SyncDir for a directory that is open for reading.
func SyncOpen(dir *os.File) error {
	err := dir.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}

// write replaces the file at path. It calls written with the temporary file before that takes the old one's place.
func write(path string, data []byte, mode os.FileMode, written func(*os.File) error) error {
	tmp, err := lockNew(path+".tmp", mode)
	if err != nil {
		return err
	}
	defer tmp.Close()
	if err := tmp.Truncate(0); err != nil { // left by an interrupted call
		return err
	}
	if _, err := tmp.Write(data); err != nil {
		return err
	}
	if err := tmp.Chmod(mode); err != nil { // the umask removed bits from it
		return err
	}
	if err := written(tmp); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// lockNew opens and locks the file at path, and creates it if necessary.
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

// Lock is an exclusive lock on a directory. It excludes other processes and other holders in the
// same process.
type Lock struct{ dir *os.File }

// LockDir creates the directory if it does not exist, locks it, and waits while another holds the
// lock. The directory itself is the lock: so a package whose last user removes its directory leaves
// no lock file, and a waiter then creates a new directory.
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

// LockExisting is LockDir for a directory that may be missing; the error is then os.ErrNotExist.
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

// Unlock releases the lock. The directory may have been removed meanwhile.
func (l *Lock) Unlock() {
	// Unlocked explicitly, because a child process between fork and exec still shares the open file
	// description.
	_ = flock(l.dir, unix.LOCK_UN)
	l.dir.Close()
}

// ErrLocked reports that another holds the lock.
var ErrLocked = errors.New("locked by another")

// TryLockDir is LockDir without waiting; if another holds the lock, the error is ErrLocked.
func TryLockDir(path string, mode os.FileMode) (*Lock, error) {
	for {
		if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
		lock, err := TryLockExisting(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // its holder has just removed it
		}
		return lock, err
	}
}

// TryLockExisting is LockExisting without waiting; if another holds the lock, the error is
// ErrLocked.
func TryLockExisting(path string) (*Lock, error) {
	lock, err := lockExisting(path, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, ErrLocked
	}
	return lock, err
}

// Path returns the path with which the directory was locked.
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

// Elsewhere reports whether path no longer leads to the open file or directory f, because that was
// removed or replaced.
func Elsewhere(f *os.File, path string) bool {
	there, err := isAt(f, path)
	return errors.Is(err, os.ErrNotExist) || err == nil && !there
}

// isAt reports whether path still leads to the open file or directory.
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

// Inode returns a file's inode number; 0 if info has none.
func Inode(info os.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}
