package file

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/sys"
)

// errBusy reports that a file is being written.
var errBusy = errors.New("is being written")

// maxRead is one byte more than the size limit of a manifest, so that a longer one is detected.
const maxRead = decode.MaxSize + 1

// readFile returns the content of a file and its print. The content is of one moment as far as that
// can be detected: readFile returns errBusy if the file changed while it was read or, on file
// systems with leases, if a process has it open for writing.
func readFile(path string, now time.Time) ([]byte, print, error) {
	f, before, err := open(path)
	if err != nil {
		return nil, print{}, err
	}
	defer f.Close()
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

// open opens a regular file, and nothing else: to open a named pipe would block until it has a writer, and to open a
// device may have effects. A link can lead to such a file, at any time.
func open(path string) (*os.File, fs.FileInfo, error) {
	fail := func(err error) (*os.File, fs.FileInfo, error) {
		if at := (*fs.PathError)(nil); errors.As(err, &at) {
			err = at.Err
		}
		return nil, nil, fmt.Errorf("reading %s: %w", path, err)
	}
	at, err := os.OpenFile(path, unix.O_PATH, 0) // which opens nothing but the path
	if err != nil {
		return fail(err)
	}
	defer at.Close()
	info, err := at.Stat()
	if err != nil {
		return fail(err)
	}
	if !info.Mode().IsRegular() {
		return nil, nil, notRegular(path, info)
	}
	// One as /proc/kmsg never ends.
	if name, err := sys.KernelFS(int(at.Fd())); err != nil || name != "" {
		return fail(cmp.Or(err, fmt.Errorf("is a file of the kernel's %s, not a manifest", name)))
	}
	f, err := os.OpenFile(sys.FDPath(int(at.Fd())), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return fail(err)
	}
	return f, info, nil
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
