package containerlog

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys"
)

// disk is every change that a conversion makes; tests cut it short.
type disk interface {
	WriteAt(f *os.File, b []byte, off int64) (int, error)
	Truncate(f *os.File, size int64) error
	Punch(path string, off, n int64) error
	Remove(path string) error
	Rename(from, to string) error
}

type realDisk struct{}

func (realDisk) WriteAt(f *os.File, b []byte, off int64) (int, error) { return f.WriteAt(b, off) }
func (realDisk) Truncate(f *os.File, size int64) error                { return f.Truncate(size) }

// keptForReaders is how much is not freed while somebody reads a raw file; more, and whoever does is too slow.
const keptForReaders = 64 << 20

// Punch frees a range's blocks. The file keeps its size, so that its appender is not disturbed. It fails with
// errBusy while somebody reads the file who may not have come so far yet.
func (realDisk) Punch(path string, off, n int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if n < keptForReaders {
		if err := tryLock(f); err != nil {
			return err // freed with the next
		}
	}
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
}

func (realDisk) Rename(from, to string) error { return os.Rename(from, to) }

func (realDisk) Remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// tryLock takes f's lock if nobody holds it.
func tryLock(f *os.File) error {
	for {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err {
		case unix.EINTR:
		case unix.EWOULDBLOCK:
			return errBusy
		default:
			return err
		}
	}
}

// lockShared takes a lock of f's beside others that do.
func lockShared(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_SH); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func unlock(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// unlinked reports that f has no name any more: another process finished the instance.
func unlinked(f *os.File) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false, err
	}
	return st.Nlink == 0, nil
}

// hasWriter reports that a process has the file open for writing. A read lease is given exactly when
// none has; a file system without leases says no.
func hasWriter(path string) bool {
	f, err := sys.OpenRegularAt(path)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	if err == nil {
		_, _ = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	}
	return errors.Is(err, unix.EAGAIN)
}
