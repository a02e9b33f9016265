package sys

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Follow selects which symbolic links are followed on the way to a file that others can replace.
// The magic links of /proc are never followed.
type Follow uint64

const (
	// NoLinks follows no symbolic links.
	NoLinks Follow = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	// LinksBeneath follows links that do not lead out of the root directory.
	LinksBeneath Follow = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS
	// LinksInRoot resolves links with the root directory as /, as in a container of an image.
	LinksInRoot Follow = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS
)

var (
	// ErrNotRegular reports that the path is not a file with content, but a FIFO, a device, a
	// directory or a symbolic link.
	ErrNotRegular = errors.New("is not a regular file")
	// ErrTooLong reports that a file has more bytes than its reader accepts.
	ErrTooLong = errors.New("is too long")
)

// moreTries is how often the kernel is asked again if something was renamed while it resolved a
// path.
const moreTries = 100

// OpenRegular opens a regular file beneath root that a container, an image or another user can
// write or replace. It never opens anything but a regular file: opening a FIFO blocks, and opening
// a device may have side effects. flags are os.O_RDONLY or os.O_RDWR. root itself is podrun's own,
// and symbolic links to it are followed. The error may be ErrNotRegular or os.ErrNotExist.
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
	// Opened by the descriptor, so that it is the file that was inspected, whatever has its name
	// now.
	fd, err := retried(func() (int, error) {
		return unix.Open(FDPath(at), flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return fail(err)
	}
	return os.NewFile(uintptr(fd), filepath.Join(root, name)), nil
}

// openBeneath returns an O_PATH descriptor, which can be inspected but does not open the file
// itself.
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

// OpenBeneath opens a path below a directory, following only the symbolic links that links permits.
// It is for files that are known to be podrun's own; OpenRegular is for files that may be anything.
// A file that flags make it create has mode 0600.
func OpenBeneath(dir *os.File, name string, links Follow, flags int) (*os.File, error) {
	path := filepath.Join(dir.Name(), name)
	fd, err := openat2(int(dir.Fd()), name, flags, links)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// MkdirBeneath creates directories below root, one in the other, unless they exist, and opens the
// innermost. It follows no links below root, also if somebody replaces a directory meanwhile.
func MkdirBeneath(root string, mode os.FileMode, names ...string) (*os.File, error) {
	dir, err := os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	for _, name := range names {
		if err != nil {
			return nil, err
		}
		within := dir
		dir, err = MkdirIn(within, name, mode)
		within.Close()
	}
	return dir, err
}

// MkdirIn creates a directory in another one, unless it exists, and opens it. It follows no link there.
func MkdirIn(within *os.File, name string, mode os.FileMode) (*os.File, error) {
	err := unix.Mkdirat(int(within.Fd()), name, uint32(mode.Perm()))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &os.PathError{Op: "mkdir", Path: filepath.Join(within.Name(), name), Err: err}
	}
	return OpenBeneath(within, name, NoLinks, unix.O_PATH|unix.O_DIRECTORY)
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

// retried calls open again if a signal interrupted it.
func retried(open func() (int, error)) (int, error) {
	for {
		fd, err := open()
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// OpenRegularAt opens a file in a directory of podrun's own for reading, with OpenRegular.
func OpenRegularAt(path string) (*os.File, error) {
	return OpenRegular(filepath.Dir(path), filepath.Base(path), NoLinks, os.O_RDONLY)
}

// ReadRegular reads the file that OpenRegular opens. If the file has more than most bytes, it
// returns ErrTooLong and no data.
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
