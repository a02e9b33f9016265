package cp

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys"
)

// temporaryName is the name of a file until all of it is written.
func temporaryName() string { return ".podrun-cp-" + rand.Text() }

// target is a name in a directory of the container.
type target struct {
	dir  *os.File
	name string
	path string // for messages
}

// into copies into the container. What is copied goes into the directory to if that exists, as with kubectl cp; of a
// source that is . or .. the content does.
func (t *transfer) into(from, to string) (err error) {
	e, err := named(from)
	if err != nil {
		return err
	}
	defer e.Close()
	if !e.regular() && !e.directory() {
		return fmt.Errorf("%s is %s: it is not copied", from, e.kindName())
	}
	if t.writer, err = t.owner.write(); err != nil {
		return err
	}
	defer t.writer.stop()
	full := path.Clean(t.absolute(to))
	dir, err := t.openDirectory(to)
	last := filepath.Base(from)
	switch {
	case err == nil && (last == "." || last == "..") && e.directory():
		defer dir.Close()
		return t.childrenInto(e, dir, full, 0)
	case err == nil:
		defer dir.Close()
		return t.entryInto(e, target{dir, last, path.Join(full, last)}, 0)
	case trailing(to) != "" && !e.directory() || full == "/":
		return err
	}
	if dir, err = t.openDirectory(path.Dir(full)); err != nil {
		return err
	}
	defer dir.Close()
	return t.entryInto(e, target{dir, path.Base(full), full}, 0)
}

// openDirectory opens a directory of the container, to which files are copied.
func (t *transfer) openDirectory(name string) (f *os.File, err error) {
	err = t.writer.do(-1, func() error {
		f, err = sys.OpenBeneath(t.root, t.absolute(name), sys.LinksInRoot, unix.O_PATH|unix.O_DIRECTORY)
		return err
	})
	if errors.Is(err, unix.EACCES) {
		f, err = t.walk(name, err)
	}
	if err == nil {
		err = writable(f)
	}
	if err != nil {
		return nil, t.fail(name, err)
	}
	return f, nil
}

// walk opens a directory that is denied without capabilities, where those depend on the owner of each directory on the
// way. It follows no link; whatever fails, the error is denied.
func (t *transfer) walk(name string, denied error) (*os.File, error) {
	at, err := sys.OpenBeneath(t.root, ".", sys.NoLinks, unix.O_PATH|unix.O_DIRECTORY)
	for part := range strings.SplitSeq(strings.Trim(path.Clean(t.absolute(name)), "/"), "/") {
		if err != nil {
			return nil, denied
		}
		dir := at
		err = t.writer.do(int(dir.Fd()), func() (err error) {
			at, err = sys.OpenBeneath(dir, part, sys.NoLinks, unix.O_PATH|unix.O_DIRECTORY)
			return err
		})
		dir.Close()
	}
	if err != nil {
		return nil, denied
	}
	return at, nil
}

// writable closes a directory in which nothing is made, and says why: what is made among the kernel's files does
// something.
func writable(dir *os.File) error {
	if !(entry{File: dir}).ofTheKernel() {
		return nil
	}
	dir.Close()
	return errors.New("is of the kernel")
}

// entryInto copies an entry of this machine to a target.
func (t *transfer) entryInto(e entry, to target, depth int) error {
	switch {
	case e.regular() && !e.ofTheKernel():
		return t.fileInto(e, to)
	case e.directory() && !e.ofTheKernel():
		return t.directoryInto(e, to, depth)
	case e.kind() == unix.S_IFLNK:
		return t.linkInto(e, to)
	case e.regular() || e.directory():
		t.skip(e.Name(), "of the kernel")
	default:
		t.skip(e.Name(), e.kindName())
	}
	return nil
}

// directoryInto copies a directory with what is in it.
func (t *transfer) directoryInto(e entry, to target, depth int) error {
	if depth > deepest {
		return fmt.Errorf("%s: more than %d directories in each other", e.Name(), deepest)
	}
	var made error
	var dir *os.File
	err := t.writer.do(int(to.dir.Fd()), func() (err error) {
		if made = unix.Mkdirat(int(to.dir.Fd()), to.name, 0o700); made != nil && !errors.Is(made, unix.EEXIST) {
			return made
		}
		dir, err = sys.OpenBeneath(to.dir, to.name, sys.NoLinks, unix.O_PATH|unix.O_DIRECTORY)
		return err
	})
	if err == nil {
		err = writable(dir)
	}
	if err != nil {
		return t.fail(to.path, err)
	}
	defer dir.Close()
	if err := t.childrenInto(e, dir, to.path, depth+1); err != nil {
		return err
	}
	if made != nil {
		return nil // it was there, and stays whose it is
	}
	if err := t.settle(dir, e); err != nil {
		return t.fail(to.path, err)
	}
	return nil
}

// childrenInto copies what is in a directory.
func (t *transfer) childrenInto(e entry, to *os.File, shown string, depth int) error {
	return t.children(e, func(from *os.File, name string) error {
		return t.childInto(from, name, target{to, name, path.Join(shown, name)}, depth)
	})
}

func (t *transfer) childInto(from *os.File, name string, to target, depth int) error {
	e, err := entryIn(from, name)
	if errors.Is(err, os.ErrNotExist) {
		return nil // removed since the directory was read
	}
	if err != nil {
		return err
	}
	defer e.Close()
	return t.entryInto(e, to, depth)
}

// settle gives what the writer made its owner, as far as the writer may, and its mode.
func (t *transfer) settle(f *os.File, of entry) error {
	fd, mode := int(f.Fd()), of.perm()
	if !t.preserve {
		mode &^= 0o022
	}
	return t.writer.do(fd, func() error {
		if t.preserve {
			uid, gid := t.owner.of(of.st.Uid, of.st.Gid)
			if err := unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH); err != nil && !errors.Is(err, unix.EPERM) {
				return err
			}
		}
		return unix.Chmod(sys.FDPath(fd), uint32(mode))
	})
}

// fileInto copies a file. It appears when all of it is written; a copy that fails leaves what had the name.
func (t *transfer) fileInto(e entry, to target) error {
	in, err := e.open()
	if err != nil {
		return err
	}
	defer in.Close()
	temporary, fd := temporaryName(), -1
	err = t.writer.do(int(to.dir.Fd()), func() (err error) {
		const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
		fd, err = unix.Openat(int(to.dir.Fd()), temporary, flags, 0o600) // trusted: made anew
		return err
	})
	if err != nil {
		return t.fail(to.path, err)
	}
	out := os.NewFile(uintptr(fd), to.path)
	err = t.content(out, in)
	if err == nil {
		err = t.settle(out, e)
	}
	if closed := out.Close(); err == nil {
		err = closed
	}
	return t.finish(temporary, to, err)
}

// linkInto copies a symbolic link as it is: it leads to a path of the container. It is the writer's.
func (t *transfer) linkInto(e entry, to target) error {
	leads := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(e.Fd()), "", leads)
	if err != nil {
		return fmt.Errorf("%s: %w", e.Name(), err)
	}
	temporary := temporaryName()
	dir := int(to.dir.Fd())
	err = t.writer.do(dir, func() error { return unix.Symlinkat(string(leads[:n]), dir, temporary) })
	if err != nil {
		return t.fail(to.path, err)
	}
	return t.finish(temporary, to, nil)
}

// finish gives what was written its name, or removes it if that failed.
func (t *transfer) finish(temporary string, to target, err error) error {
	dir := int(to.dir.Fd())
	err = t.writer.do(dir, func() error {
		if err == nil {
			err = replaceable(to)
		}
		if err == nil {
			err = unix.Renameat(dir, temporary, dir, to.name)
		}
		if err != nil {
			_ = unix.Unlinkat(dir, temporary, 0)
		}
		return err
	})
	if err != nil {
		return t.fail(to.path, err)
	}
	return nil
}

// replaceable returns why what has the name of a target is not replaced.
func replaceable(to target) error {
	e, err := entryIn(to.dir, to.name)
	if err != nil {
		return nil // there is nothing, or the new name fails
	}
	defer e.Close()
	if !e.regular() && e.kind() != unix.S_IFLNK {
		return errors.New("is " + e.kindName())
	}
	// A new file in the place of a mount in another mount namespace would end the mount.
	file, err := mountOf(e.File)
	if err != nil {
		return err
	}
	if dir, err := mountOf(to.dir); err != nil || dir != file {
		return errors.Join(err, errors.New("is a mount of its own"))
	}
	return nil
}

// mountOf identifies the mount that a file is on. Before Linux 5.8 that is the file system.
func mountOf(f *os.File) (mount [3]uint64, err error) {
	var st unix.Statx_t
	err = unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st)
	return [3]uint64{st.Mnt_id, uint64(st.Dev_major), uint64(st.Dev_minor)}, err
}
