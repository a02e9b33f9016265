package cp

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys"
)

// entry is a file, on either side, by a descriptor that can be inspected and opens nothing. So it stays the file that
// was inspected, whatever is done to its name. Neither side is trusted: what is copied into a container may be a
// volume of another one, or a directory of another user.
type entry struct {
	*os.File
	st unix.Stat_t
}

// inspect makes an entry of a descriptor.
func inspect(f *os.File) (entry, error) {
	e := entry{File: f}
	if err := unix.Fstat(int(f.Fd()), &e.st); err != nil {
		f.Close()
		return e, &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return e, nil
}

// named returns the entry of a path of this machine. Links are followed: it is what the user says.
func named(path string) (entry, error) {
	f, err := os.OpenFile(path, unix.O_PATH, 0) // trusted: the user's, only opened as a path
	if err != nil {
		return entry{}, err
	}
	return inspect(f)
}

// entryIn returns an entry of a directory, which may be a link.
func entryIn(dir *os.File, name string) (entry, error) {
	path := filepath.Join(dir.Name(), name)
	// trusted: only opened as a path, no link
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return entry{}, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return inspect(os.NewFile(uintptr(fd), path))
}

func (e entry) kind() uint32      { return e.st.Mode & unix.S_IFMT }
func (e entry) regular() bool     { return e.kind() == unix.S_IFREG }
func (e entry) directory() bool   { return e.kind() == unix.S_IFDIR }
func (e entry) perm() os.FileMode { return os.FileMode(e.st.Mode).Perm() }

// kindName names the type of a file that is not copied.
func (e entry) kindName() string {
	switch e.kind() {
	case unix.S_IFLNK:
		return "a symbolic link"
	case unix.S_IFIFO:
		return "a FIFO"
	case unix.S_IFSOCK:
		return "a socket"
	case unix.S_IFCHR, unix.S_IFBLK:
		return "a device"
	case unix.S_IFDIR:
		return "a directory"
	}
	return "no regular file"
}

// open opens a regular file or a directory to read it.
func (e entry) open() (*os.File, error) {
	// trusted: regular, as inspected
	fd, err := unix.Open(sys.FDPath(int(e.Fd())), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: e.Name(), Err: err}
	}
	return os.NewFile(uintptr(fd), e.Name()), nil
}

// ofTheKernel reports that a file is not one of a disk or of memory.
func (e entry) ofTheKernel() bool {
	name, err := sys.KernelFS(int(e.Fd()))
	return err != nil || name != ""
}
