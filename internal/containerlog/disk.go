package containerlog

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys"
)

// disk is every change that a conversion makes to files; tests interrupt it.
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

// readerBacklog is how many converted bytes of a raw file are kept while it has a reader; if there
// are more, the reader is too slow and they are freed.
const readerBacklog = 64 << 20

// Punch frees the blocks of a range. The file keeps its size, so that the process that appends to
// it is not disturbed. It fails with errBusy while the file has a reader that may not have read the
// range yet.
func (realDisk) Punch(path string, off, n int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0) // trusted: a directory of podrun's own
	if err != nil {
		return err
	}
	defer f.Close()
	if n < readerBacklog {
		if err := tryLock(f); err != nil {
			return err // freed together with the next range
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

// tryLock takes the exclusive lock on f; errBusy if another holds a lock.
func tryLock(f *os.File) error {
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return err
	}
	return errBusy
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func unlock(f *os.File) { _ = flock(f, unix.LOCK_UN) }

// unlinked reports whether f has no name any more: another process has finished the instance.
func unlinked(f *os.File) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false, err
	}
	return st.Nlink == 0, nil
}

// hasWriter reports whether a process has the file open for writing. The kernel grants a read lease
// exactly if no process has. On a file system without leases the answer is always false.
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
