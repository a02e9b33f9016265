package file

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

// errBusy reports that a file is being written.
var errBusy = errors.New("is being written")

// maxRead is one byte more than the size limit of a manifest, so that a longer one is detected.
const maxRead = decode.MaxSize + 1

// readFile returns the content of a file and its print. The content is of one moment as far as that
// can be detected: readFile returns errBusy if the file changed while it was read or, on file
// systems with leases, if a process has it open for writing.
func readFile(path string, now time.Time) ([]byte, print, error) {
	// Without O_NONBLOCK, opening a named pipe would block until it has a writer.
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
		return nil, print{}, notRegular(path, before)
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

// notRegular returns the error that a path is no file with content.
func notRegular(path string, info fs.FileInfo) error {
	if info.Mode()&fs.ModeNamedPipe != 0 {
		return fmt.Errorf("reading %s: is a pipe, not a regular file; once, validate and diff read standard input as -", path)
	}
	return fmt.Errorf("reading %s: is not a regular file", path)
}

// written reports whether a process has f open for writing. The kernel grants a read lease only if
// none has. The lease is released at once, so that no writer has to wait for it.
func written(f *os.File) bool {
	fd := f.Fd()
	if _, err := unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		return errors.Is(err, unix.EAGAIN) // any other error: leases are not available here
	}
	_, _ = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_UNLCK)
	return false
}

// print identifies one state of a file. Equal prints mean that the file did not change; see fresh
// for the exception.
type print struct {
	dev, ino uint64
	size     int64
	written  time.Time
	changed  syscall.Timespec
	// at is the time at which the print was made; zero: there is no print.
	at time.Time
}

// freshness is the time in which a file may change again without new time stamps, because these are
// coarse.
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

// fresh reports whether the file was read so soon after it was written that it may have been
// written again with the same time stamps.
func (p print) fresh() bool {
	age := p.at.Sub(time.Unix(p.changed.Unix()))
	return !p.at.IsZero() && age > -freshness && age < freshness
}
