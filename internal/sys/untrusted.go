package sys

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Follow says which symbolic links a file that others can write may be reached by. Links of /proc never are.
type Follow uint64

const (
	// NoLinks follows none.
	NoLinks Follow = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	// LinksBeneath follows those that do not lead out of the root directory.
	LinksBeneath Follow = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS
	// LinksInRoot takes the root directory for /, as a container of an image does.
	LinksInRoot Follow = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS
)

var (
	// ErrNotRegular says that there is something else than a file with content: a FIFO, a device, a directory, a link.
	ErrNotRegular = errors.New("is not a regular file")
	// ErrTooLong says that a file has more bytes than its reader accepts.
	ErrTooLong = errors.New("is too long")
)

// moreTries is how often the kernel is asked again because something was renamed while it resolved a path.
const moreTries = 100

// OpenRegular opens a regular file beneath root that a container, an image or another user can write, or can put
// something else in the place of. Nothing but a regular file is ever opened: opening a FIFO waits, and opening a
// device may do something. flags are os.O_RDONLY or os.O_RDWR. root itself is podrun's own, and links to it are
// followed. The error may be ErrNotRegular or os.ErrNotExist.
func OpenRegular(root, name string, links Follow, flags int) (*os.File, error) {
	fail := func(err error) (*os.File, error) {
		return nil, &os.PathError{Op: "open", Path: filepath.Join(root, name), Err: err}
	}
	at, err := openBeneath(root, name, links)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return fail(err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fail(ErrNotRegular)
	}
	// By the descriptor, so that it is the file that was looked at, whatever has its name now.
	fd, err := retried(func() (int, error) {
		return unix.Open(FDPath(at), flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return fail(err)
	}
	return os.NewFile(uintptr(fd), filepath.Join(root, name)), nil
}

// openBeneath finds a file without opening it: the descriptor serves only to look at it.
func openBeneath(root, name string, links Follow) (int, error) {
	dir, err := retried(func() (int, error) {
		return unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	at, err := openat2(dir, name, unix.O_PATH, links)
	if errors.Is(err, unix.ELOOP) && links == NoLinks {
		err = ErrNotRegular
	}
	return at, err
}

// OpenBeneath opens what is at a path below a directory, following no links but those that are told. It is for what
// is known to be podrun's own; OpenRegular is for what may be anything. A file that flags have it create is its owner's alone.
func OpenBeneath(dir *os.File, name string, links Follow, flags int) (*os.File, error) {
	path := filepath.Join(dir.Name(), name)
	fd, err := openat2(int(dir.Fd()), name, flags, links)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func openat2(dir int, name string, flags int, links Follow) (int, error) {
	how := &unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: uint64(links)}
	if flags&unix.O_CREAT != 0 {
		how.Mode = 0o600
	}
	for tries := 0; ; tries++ {
		at, err := retried(func() (int, error) { return unix.Openat2(dir, name, how) })
		switch {
		case errors.Is(err, unix.EAGAIN) && tries < moreTries:
		case errors.Is(err, unix.ENOSYS):
			return -1, errors.New("needs a kernel with openat2 (Linux 5.6)")
		default:
			return at, err
		}
	}
}

// retried calls open again when a signal cut it off.
func retried(open func() (int, error)) (int, error) {
	for {
		fd, err := open()
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// OpenRegularAt is OpenRegular to read a file in a directory of podrun's own.
func OpenRegularAt(path string) (*os.File, error) {
	return OpenRegular(filepath.Dir(path), filepath.Base(path), NoLinks, os.O_RDONLY)
}

// ReadRegular reads what OpenRegular opens. A file of more than most bytes is ErrTooLong, and not read.
func ReadRegular(root, name string, links Follow, most int) ([]byte, error) {
	f, err := OpenRegular(root, name, links, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	tooLong := &os.PathError{Op: "read", Path: f.Name(), Err: fmt.Errorf("%w: at most %d bytes", ErrTooLong, most)}
	if info.Size() > int64(most) {
		return nil, tooLong
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(most)+1)) // it may grow meanwhile
	if err == nil && len(data) > most {
		return nil, tooLong
	}
	return data, err
}
