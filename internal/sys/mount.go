package sys

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Allow is what a mount lets the files in it do. Nothing but what its users need is allowed.
type Allow uintptr

const (
	// AllowNothing is for what no program runs from.
	AllowNothing Allow = 0
	// AllowExec lets programs run from it.
	AllowExec Allow = unix.MS_NOEXEC
)

// flags are those of a mount that allows no more.
func (a Allow) flags() uintptr {
	return (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC) &^ uintptr(a)
}

// MountFS mounts a new file system of a kind, such as tmpfs, at a path. source is what the table of mounts calls it,
// options are the kind's own. No device works in it and no program in it changes its user.
func MountFS(kind, source, at, options string, allow Allow) error {
	return mountError(at, unix.Mount(source, at, kind, allow.flags(), options))
}

// RemountReadOnly makes what is mounted at a path read-only, for this mount namespace.
func RemountReadOnly(at string, allow Allow) error {
	return mountError(at, unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|allow.flags(), ""))
}

// Bind shows the directory or file source at a path, with what is mounted below it. What it allows is what source's
// own mount does: it is for what containers see of their volumes.
func Bind(source, at string) error {
	return mountError(at, unix.Mount(source, at, "", unix.MS_BIND|unix.MS_REC, ""))
}

// BindOne is Bind without what is mounted below source. Podrun itself alone uses what is there.
func BindOne(source, at string) error {
	return mountError(at, unix.Mount(source, at, "", unix.MS_BIND, ""))
}

// BindMapped is Bind of file to target, as the users see it whose namespace is the third file. What is mounted below it
// they see as nobody's. errors.ErrUnsupported: its file system cannot do that.
func BindMapped(file, target, users *os.File) error {
	const clone = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH | unix.AT_RECURSIVE
	tree, err := unix.OpenTree(int(file.Fd()), "", clone)
	if err != nil {
		return os.NewSyscallError("open_tree", err)
	}
	defer unix.Close(tree)
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(users.Fd())}
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, attr)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: mount_setattr: %w", errors.ErrUnsupported, err)
	}
	if err != nil {
		return os.NewSyscallError("mount_setattr", err)
	}
	const byDescriptors = unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
	return os.NewSyscallError("move_mount", unix.MoveMount(tree, "", int(target.Fd()), "", byDescriptors))
}

// Propagation says which mounts and unmounts of others a mount sees, and whether they see its own.
type Propagation uintptr

const (
	// Private sees none of others, and they see none of its own.
	Private Propagation = unix.MS_PRIVATE
	// PrivateTree is Private with all that is mounted below.
	PrivateTree Propagation = unix.MS_PRIVATE | unix.MS_REC
	// SlaveTree sees those of others, which see none of its own, with all that is mounted below.
	SlaveTree Propagation = unix.MS_SLAVE | unix.MS_REC
)

// SetPropagation changes that of what is mounted at a path. ErrNotMounted: nothing is.
func SetPropagation(at string, p Propagation) error {
	err := unix.Mount("", at, "", uintptr(p), "")
	if errors.Is(err, unix.EINVAL) {
		err = fmt.Errorf("%w: %w", ErrNotMounted, err)
	}
	return mountError(at, err)
}

// PivotRoot makes a mount the root directory of this mount namespace. What was the root before is mounted on it, and
// Detach(".") takes it away when root is the working directory.
func PivotRoot(root string) error { return mountError(root, unix.PivotRoot(root, root)) }

// ErrNotMounted says that nothing is mounted at a path.
var ErrNotMounted = errors.New("not a mount point")

// Unmount unmounts what was mounted last at a path, following no link there. What is in use is an error. ErrNotMounted:
// nothing is mounted, or nothing is there.
func Unmount(at string) error { return unmount(at, 0) }

// Detach is Unmount also of what is in use: it goes from the path at once, and whoever uses it goes on.
func Detach(at string) error { return unmount(at, unix.MNT_DETACH) }

func unmount(at string, flags int) error {
	err := unix.Unmount(at, unix.UMOUNT_NOFOLLOW|flags)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		err = fmt.Errorf("%w: %w", ErrNotMounted, err)
	}
	if err != nil {
		return &os.PathError{Op: "unmount", Path: at, Err: err}
	}
	return nil
}

func mountError(at string, err error) error {
	if err != nil {
		return &os.PathError{Op: "mount", Path: at, Err: err}
	}
	return nil
}
