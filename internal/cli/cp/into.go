package cp

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys"
)

// temporaryName is the name of a file until all of it is written.
func temporaryName() string { return ".podrun-cp-" + rand.Text() }

// into copies into the container. What is copied goes into the directory to if that exists, as with kubectl cp.
func (t *transfer) into(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() && !info.IsDir() {
		return fmt.Errorf("%s is neither a file nor a directory", from)
	}
	clean := path.Clean(t.absolute(to))
	name := path.Base(clean)
	within := clean
	dir, err := t.openDirectory(to)
	if err == nil {
		full, err := filepath.Abs(from)
		if err != nil {
			return err
		}
		name = filepath.Base(full)
	} else if trailing(to) != "" || name == "/" {
		return err
	} else {
		within = path.Dir(clean)
		if dir, err = t.openDirectory(within); err != nil {
			return err
		}
	}
	defer dir.Close()
	return t.entryInto(from, info, target{dir, name, path.Join(within, name)}, 0)
}

// target is a name in a directory of the container.
type target struct {
	dir  *os.File
	name string
	path string // for messages
}

// openDirectory opens a directory of the container.
func (t *transfer) openDirectory(name string) (*os.File, error) {
	f, err := sys.OpenBeneath(t.root, t.absolute(name), sys.LinksInRoot, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, t.fail(name, err)
	}
	return f, nil
}

// entryInto copies one file of this machine to a target.
func (t *transfer) entryInto(from string, info os.FileInfo, to target, depth int) error {
	if err := t.ctx.Err(); err != nil {
		return err
	}
	var err error
	switch mode := info.Mode(); {
	case mode.IsRegular():
		err = t.fileInto(from, info, to)
	case mode.IsDir():
		return t.directoryInto(from, info, to, depth)
	case mode&os.ModeSymlink != 0:
		err = t.linkInto(from, info, to)
	default:
		t.skip(from, "it is neither a file nor a directory nor a symbolic link")
	}
	return err
}

// directoryInto copies a directory with what is in it.
func (t *transfer) directoryInto(from string, info os.FileInfo, to target, depth int) error {
	if depth > deepest {
		return fmt.Errorf("%s: more than %d directories in each other", from, deepest)
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	made := unix.Mkdirat(int(to.dir.Fd()), to.name, 0o700)
	if made != nil && !errors.Is(made, unix.EEXIST) {
		return t.fail(to.path, made)
	}
	fd, err := unix.Openat(int(to.dir.Fd()), to.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return t.fail(to.path, err)
	}
	dir := os.NewFile(uintptr(fd), to.path)
	defer dir.Close()
	for _, e := range entries {
		path := filepath.Join(from, e.Name())
		info, err := e.Info()
		if err == nil {
			err = t.entryInto(path, info, target{dir, e.Name(), filepath.Join(to.path, e.Name())}, depth+1)
		}
		switch {
		case t.ctx.Err() != nil:
			return t.ctx.Err()
		case err != nil && !errors.Is(err, os.ErrNotExist):
			t.miss(err)
		}
	}
	if made != nil {
		return nil // it was there, and stays whose it is
	}
	if err := t.settle(fd, info); err != nil {
		return t.fail(to.path, err)
	}
	return nil
}

// settle gives a file in the container its owner and mode.
func (t *transfer) settle(fd int, info os.FileInfo) error {
	uid, gid := t.owner.ofInfo(info, t.preserve)
	if err := unix.Fchown(fd, uid, gid); err != nil {
		return err
	}
	mode := info.Mode().Perm()
	if !t.preserve {
		mode &^= 0o022
	}
	return unix.Fchmod(fd, uint32(mode))
}

// fileInto copies a file. It appears when all of it is written; a copy that fails leaves what had the name.
func (t *transfer) fileInto(from string, info os.FileInfo, to target) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	temporary := temporaryName()
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(int(to.dir.Fd()), temporary, flags, 0o600)
	if err != nil {
		return t.fail(to.path, err)
	}
	out := os.NewFile(uintptr(fd), to.path)
	err = t.content(out, in)
	if err == nil {
		err = t.settle(fd, info)
	}
	if closed := out.Close(); err == nil {
		err = closed
	}
	return t.finish(temporary, to, err)
}

// linkInto copies a symbolic link as it is: it leads to a path of the container.
func (t *transfer) linkInto(from string, info os.FileInfo, to target) error {
	leads, err := os.Readlink(from)
	if err != nil {
		return err
	}
	temporary := temporaryName()
	if err := unix.Symlinkat(leads, int(to.dir.Fd()), temporary); err != nil {
		return t.fail(to.path, err)
	}
	uid, gid := t.owner.ofInfo(info, t.preserve)
	err = unix.Fchownat(int(to.dir.Fd()), temporary, uid, gid, unix.AT_SYMLINK_NOFOLLOW)
	return t.finish(temporary, to, err)
}

// finish gives what was written its name, or removes it if that failed.
func (t *transfer) finish(temporary string, to target, err error) error {
	dir := int(to.dir.Fd())
	if err == nil {
		err = t.replaceable(to)
	}
	if err == nil {
		err = unix.Renameat(dir, temporary, dir, to.name)
	}
	if err == nil {
		return nil
	}
	_ = unix.Unlinkat(dir, temporary, 0)
	return t.fail(to.path, err)
}

// replaceable returns why what has the name of a target is not replaced.
func (t *transfer) replaceable(to target) error {
	var st unix.Stat_t
	if unix.Fstatat(int(to.dir.Fd()), to.name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return nil
	}
	switch kind(&st) {
	case unix.S_IFDIR:
		return errors.New("is a directory")
	case unix.S_IFREG, unix.S_IFLNK:
	default:
		return errors.New("is " + kindName(kind(&st)))
	}
	// A new file in the place of a mount in another mount namespace would end the mount.
	file, err := mountOf(int(to.dir.Fd()), to.name, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return err
	}
	if dir, err := mountOf(int(to.dir.Fd()), "", unix.AT_EMPTY_PATH); err != nil || dir != file {
		return errors.Join(err, errors.New("is a mount of its own"))
	}
	return nil
}

// mountOf identifies the mount that a file is on.
func mountOf(dir int, name string, flags int) (mount [3]uint64, err error) {
	var st unix.Statx_t
	err = unix.Statx(dir, name, flags, unix.STATX_MNT_ID, &st)
	return [3]uint64{st.Mnt_id, uint64(st.Dev_major), uint64(st.Dev_minor)}, err // before Linux 5.8 the first one is 0
}
