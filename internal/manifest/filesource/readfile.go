package filesource

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/manifest/decode"
)

// errBusy says that a file is being written.
var errBusy = errors.New("is being written")

// maxRead is one byte more than a manifest may have, so that a longer one shows.
const maxRead = decode.MaxSize + 1

// readFile returns a file's content as of one moment, as far as can be told: where the file system has
// leases, a file that somebody has open for writing is errBusy.
func readFile(path string, now time.Time) ([]byte, print, error) {
	// Without NONBLOCK, opening a named pipe would wait for its writer.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, print{}, fmt.Errorf("reading %s: %w", path, errors.Unwrap(err))
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return nil, print{}, fmt.Errorf("reading %s: %w", path, errors.Unwrap(err))
	}
	if !before.Mode().IsRegular() {
		return nil, print{}, fmt.Errorf("reading %s: is not a regular file", path)
	}
	if written(f) {
		return nil, print{}, errBusy
	}
	data, err := io.ReadAll(io.LimitReader(f, maxRead))
	if err != nil {
		return nil, print{}, fmt.Errorf("reading %s: %w", path, errors.Unwrap(err))
	}
	after, err := f.Stat()
	if err != nil {
		return nil, print{}, fmt.Errorf("reading %s: %w", path, errors.Unwrap(err))
	}
	if taken := printOf(before, now); !taken.same(after) || written(f) {
		return nil, print{}, errBusy
	}
	return data, printOf(after, now), nil
}

// written reports that somebody has f open for writing. The kernel gives a read lease only when nobody
// has; it is returned at once, so that no writer has to wait.
func written(f *os.File) bool {
	fd := f.Fd()
	if _, err := unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		return errors.Is(err, unix.EAGAIN) // any other error: leases cannot be had here
	}
	_, _ = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_UNLCK)
	return false
}

// print tells one state of a file from another.
type print struct {
	dev, ino uint64
	size     int64
	written  time.Time
	changed  syscall.Timespec
	// at is when it was taken; zero for none.
	at time.Time
}

// freshness is for how long a file may change again with the same time stamps.
const freshness = 20 * time.Millisecond

func printOf(info fs.FileInfo, now time.Time) print {
	p := print{size: info.Size(), written: info.ModTime(), at: now}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		p.dev, p.ino, p.changed = st.Dev, st.Ino, st.Ctim
	}
	return p
}

func (p print) same(info fs.FileInfo) bool {
	return !p.at.IsZero() && p == printOf(info, p.at)
}

// fresh reports that the file was read so soon after it was written that it may have been written again
// without a trace.
func (p print) fresh() bool {
	age := p.at.Sub(time.Unix(p.changed.Unix()))
	return !p.at.IsZero() && age > -freshness && age < freshness
}
