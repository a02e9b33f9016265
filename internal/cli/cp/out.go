package cp

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// out copies out of the container. A directory's files go into the directory to, as with kubectl cp; a file goes into
// it if it exists.
func (t *transfer) out(from, to string) error {
	f, st, err := t.resolve(from)
	if err != nil {
		return err
	}
	defer f.Close()
	switch kind(st) {
	case unix.S_IFDIR:
		if err := os.MkdirAll(to, 0o777); err != nil {
			return err
		}
		root, err := os.OpenRoot(to)
		if err != nil {
			return err
		}
		defer root.Close()
		return t.directoryOut(f, t.absolute(from), root, ".", 0)
	case unix.S_IFREG:
	default:
		return fmt.Errorf("%s is %s: only regular files and directories are copied", t.shown(from), kindName(kind(st)))
	}
	info, err := os.Stat(to)
	switch {
	case err == nil && info.IsDir():
		to = filepath.Join(to, path.Base(t.absolute(from)))
	case err == nil && !info.Mode().IsRegular():
		return t.stream(f, st, to)
	case err != nil && strings.HasSuffix(to, "/"):
		return fmt.Errorf("%s is not a directory", to)
	}
	dir, name := filepath.Split(to)
	root, err := os.OpenRoot(filepath.Join(dir, "."))
	if err != nil {
		return err
	}
	defer root.Close()
	if info, err := root.Lstat(name); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory", to)
	}
	return t.fileOut(f, st, t.absolute(from), root, name)
}

// stream copies a file into something that exists on this machine and is no file, such as /dev/stdout.
func (t *transfer) stream(f *os.File, st *unix.Stat_t, to string) error {
	in, err := reopen(f, to)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|unix.O_NONBLOCK, 0) // a FIFO without a reader is an error
	if err != nil {
		return err
	}
	return errors.Join(t.bounded(out, in, st.Size), out.Close())
}

// directoryOut copies what is in a directory of the container into one beneath root.
func (t *transfer) directoryOut(f *os.File, from string, root *os.Root, to string, depth int) error {
	if depth > deepest {
		return fmt.Errorf("%s: more than %d directories in each other", t.shown(from), deepest)
	}
	dir, err := reopen(f, from)
	if err != nil {
		return t.fail(from, err)
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(1000)
		for _, name := range names {
			if err := t.ctx.Err(); err != nil {
				return err
			}
			if err := t.entryOut(dir, path.Join(from, name), root, filepath.Join(to, name), depth); err != nil {
				t.miss(err)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return t.fail(from, err)
		}
	}
}

// entryOut copies one entry of a directory.
func (t *transfer) entryOut(dir *os.File, from string, root *os.Root, to string, depth int) error {
	fd, err := unix.Openat(int(dir.Fd()), path.Base(from), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil // removed since the directory was read
	}
	if err != nil {
		return t.fail(from, err)
	}
	f := os.NewFile(uintptr(fd), from)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return t.fail(from, err)
	}
	switch kind(&st) {
	case unix.S_IFREG:
		return t.fileOut(f, &st, from, root, to)
	case unix.S_IFDIR:
	default:
		t.skip(t.shown(from), "it is "+kindName(kind(&st)))
		return nil
	}
	if kernels(fd) && !kernels(int(dir.Fd())) {
		t.skip(t.shown(from), "it is the kernel's")
		return nil
	}
	mode := os.FileMode(st.Mode).Perm()
	if err := root.Mkdir(to, mode|0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if info, err := root.Lstat(to); err != nil || !info.IsDir() {
		return errors.Join(fmt.Errorf("%s is not a directory", filepath.Join(root.Name(), to)), err)
	}
	return t.directoryOut(f, from, root, to, depth+1)
}

// fileOut copies a file of the container to a name beneath root. A copy that fails leaves what had the name.
func (t *transfer) fileOut(f *os.File, st *unix.Stat_t, from string, root *os.Root, to string) error {
	if info, err := root.Stat(to); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", filepath.Join(root.Name(), to))
	}
	in, err := reopen(f, from)
	if err != nil {
		return t.fail(from, err)
	}
	defer in.Close()
	temporary := filepath.Join(filepath.Dir(to), temporaryName())
	out, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = t.bounded(out, in, st.Size)
	if err == nil {
		err = out.Chmod(os.FileMode(st.Mode).Perm())
	}
	if closed := out.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = root.Rename(temporary, to)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", t.shown(from), err), root.Remove(temporary))
	}
	return nil
}
