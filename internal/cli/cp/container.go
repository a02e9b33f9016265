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

// Runtime tells which process a container has, and where its commands begin.
type Runtime interface {
	InspectContainers(ctx context.Context, key pod.Key, ids []string) ([]pod.Container, error)
	WorkingDir(ctx context.Context, id string) (string, error)
}

// container is the file system of a running container as its first process sees it, with its volumes. Whoever
// runs in it may change everything at any time, and may have made files of any kind: each path is resolved by the
// kernel with the container's root as /, and nothing is opened that is not known to be a regular file or a
// directory.
type container struct {
	Instance
	root *os.File
	pid  int
	// directory is where the commands of podrun exec begin. Paths are relative to it.
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
	if c.directory, err = r.WorkingDir(ctx, of.ID); err != nil {
		c.root.Close()
		return nil, err
	}
	// The process may have ended before its files were opened, and its number may be another process's since.
	if err := c.check(ctx, r); err != nil {
		c.root.Close()
		return nil, err
	}
	return c, nil
}

// check returns an error if the container's process is not the one whose files are open any more.
func (c *container) check(ctx context.Context, r Runtime) error {
	if again, err := running(ctx, r, c.Instance); err != nil || again != c.pid {
		return errors.Join(fmt.Errorf("container %q in pod %q is not running any more", c.Container, c.Key.Name), err)
	}
	return nil
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
	process, err := os.OpenFile("/proc/"+strconv.Itoa(pid), unix.O_PATH|unix.O_DIRECTORY, 0) // trusted: the kernel's
	if err != nil {
		return nil, err
	}
	defer process.Close()
	at := func(name string) string { return sys.FDPath(int(process.Fd())) + "/" + name }
	c := &container{Instance: of, pid: pid}
	if c.owner, err = readOwner(at); err != nil {
		return nil, err
	}
	// trusted: only opened as a path
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

// resolve returns the entry of a path. Links are followed within the container's root.
func (c *container) resolve(name string) (entry, error) {
	f, err := sys.OpenBeneath(c.root, c.absolute(name), sys.LinksInRoot, unix.O_PATH)
	if err == nil {
		var e entry
		if e, err = inspect(f); err == nil {
			return e, nil
		}
	}
	return entry{}, c.fail(name, err)
}

// fail is an error of a path of the container.
func (c *container) fail(name string, err error) error {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("%s: %w", c.shown(name), err)
}
