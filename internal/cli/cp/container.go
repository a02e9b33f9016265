package cp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// Runtime tells which process a container has.
type Runtime interface {
	InspectContainers(ctx context.Context, key pod.Key, ids []string) ([]pod.Container, error)
}

// container is the file system of a running container as its first process sees it, with its volumes. Whoever
// runs in it may change everything at any time, and may have made files of any kind: each path is resolved by the
// kernel with the container's root as /, and nothing is opened that is not known to be a regular file or a
// directory.
type container struct {
	Instance
	root *os.File
	// directory is the working directory of the process, to which paths are relative.
	directory string
	owner     owner
}

// open opens the root of a container's first process.
func open(ctx context.Context, r Runtime, of Instance) (*container, error) {
	pid, err := running(ctx, r, of)
	if err != nil {
		return nil, err
	}
	c, err := openProcess(pid, of)
	if err != nil {
		return nil, fmt.Errorf("opening the files of container %q in pod %q: %w", of.Container, of.Key.Name, err)
	}
	// The process may have ended before its files were opened, and its number may be another process's since.
	if again, err := running(ctx, r, of); err != nil || again != pid {
		c.root.Close()
		return nil, errors.Join(fmt.Errorf("container %q in pod %q is not running any more", of.Container, of.Key.Name), err)
	}
	return c, nil
}

// running returns the first process of a container.
func running(ctx context.Context, r Runtime, of Instance) (pid int, err error) {
	all, err := r.InspectContainers(ctx, of.Key, []string{of.ID})
	if err != nil {
		return 0, err
	}
	for _, c := range all {
		if c.ID == of.ID && c.State == pod.Running && c.PID > 0 {
			return c.PID, nil
		}
	}
	return 0, fmt.Errorf("container %q in pod %q is not running", of.Container, of.Key.Name)
}

func openProcess(pid int, of Instance) (*container, error) {
	process, err := os.OpenFile("/proc/"+strconv.Itoa(pid), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer process.Close()
	at := func(name string) string { return sys.FDPath(int(process.Fd())) + "/" + name }
	c := &container{Instance: of}
	if c.owner, err = readOwner(at); err != nil {
		return nil, err
	}
	root, err := os.Readlink(at("root"))
	if err != nil {
		return nil, err
	}
	if c.directory, err = os.Readlink(at("cwd")); err != nil {
		return nil, err
	}
	c.directory = strings.TrimPrefix(c.directory, root)
	if c.root, err = os.OpenFile(at("root"), unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
		return nil, err
	}
	return c, nil
}

// absolute returns the path from the container's root.
func (c *container) absolute(name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return path.Join("/", c.directory, name) + trailing(name)
}

// trailing returns the slash at the end of a path, which says that it is a directory.
func trailing(name string) string {
	if strings.HasSuffix(name, "/") {
		return "/"
	}
	return ""
}

// resolve returns a descriptor of what has a path, which can be inspected and opens nothing.
func (c *container) resolve(name string) (*os.File, *unix.Stat_t, error) {
	f, err := sys.OpenBeneath(c.root, c.absolute(name), sys.LinksInRoot, unix.O_PATH)
	if err != nil {
		return nil, nil, c.fail(name, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		f.Close()
		return nil, nil, c.fail(name, err)
	}
	return f, &st, nil
}

// fail is an error of a path of the container.
func (c *container) fail(name string, err error) error {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("%s: %w", c.shown(name), err)
}

// kind is the type of a file.
func kind(st *unix.Stat_t) uint32 { return st.Mode & unix.S_IFMT }

// kindName names a type of file that is not copied.
func kindName(kind uint32) string {
	switch kind {
	case unix.S_IFLNK:
		return "a symbolic link"
	case unix.S_IFIFO:
		return "a FIFO"
	case unix.S_IFSOCK:
		return "a socket"
	case unix.S_IFCHR, unix.S_IFBLK:
		return "a device"
	}
	return "no regular file"
}

// reopen opens what a descriptor of resolve or of an entry stands for, which is a regular file or a directory.
func reopen(f *os.File, name string) (*os.File, error) {
	fd, err := unix.Open(sys.FDPath(int(f.Fd())), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
