package sys

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Allow is what a mount permits its files. Only what its users need is permitted. Its bits are mount
// flags that would forbid something and are left out.
type Allow uintptr

const (
	// AllowNothing is for mounts from which no program runs.
	AllowNothing Allow = 0
	// AllowExec permits running programs: the mount does not have MS_NOEXEC.
	AllowExec Allow = unix.MS_NOEXEC
)

// flags returns the flags of a mount that permits no more.
func (a Allow) flags() uintptr {
	return (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC) &^ uintptr(a)
}

// MountFS mounts a new file system of a type, such as tmpfs, at a path. source is its source in the
// mount table, options are the options of the file system type. Devices and set-user-ID bits have
// no effect in it.
func MountFS(kind, source, at, options string, allow Allow) error {
	return mountError(at, unix.Mount(source, at, kind, allow.flags(), options))
}

// RemountReadOnly makes the mount at a path read-only, in this mount namespace.
func RemountReadOnly(at string, allow Allow) error {
	return mountError(at, unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|allow.flags(), ""))
}

// Bind bind-mounts the directory or file source at a path, including the mounts below it. It
// permits what source's own mount permits: it is for the volumes of containers.
func Bind(source, at string) error {
	return mountError(at, unix.Mount(source, at, "", unix.MS_BIND|unix.MS_REC, ""))
}

// BindOne is Bind without the mounts below source. Only podrun itself uses what it mounts.
func BindOne(source, at string) error {
	return mountError(at, unix.Mount(source, at, "", unix.MS_BIND, ""))
}

// BindMapped is Bind of file to target, ID-mapped for the user namespace of the file users. Mounts
// below file are not mapped: there, files belong to nobody in that namespace. The error is
// errors.ErrUnsupported if the file system does not support ID-mapped mounts.
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

// Propagation is whether mounts and unmounts propagate to a mount from its peers, and from it to
// them.
type Propagation uintptr

const (
	// Private: no propagation in either direction.
	Private Propagation = unix.MS_PRIVATE
	// PrivateTree is Private for the mount and all mounts below it.
	PrivateTree Propagation = unix.MS_PRIVATE | unix.MS_REC
	// SlaveTree: the mount and all mounts below it receive events from their peers and send none.
	SlaveTree Propagation = unix.MS_SLAVE | unix.MS_REC
	// SharedTree: the mount and all mounts below it send events to their peers and receive theirs.
	SharedTree Propagation = unix.MS_SHARED | unix.MS_REC
)

// SetPropagation changes the propagation of the mount at a path. The error is ErrNotMounted if
// nothing is mounted there.
func SetPropagation(at string, p Propagation) error {
	err := unix.Mount("", at, "", uintptr(p), "")
	if errors.Is(err, unix.EINVAL) {
		err = fmt.Errorf("%w: %w", ErrNotMounted, err)
	}
	return mountError(at, err)
}

// PivotRoot makes a mount the root directory of this mount namespace. The old root is then mounted
// on top of it, and Detach(".") removes that if root is the working directory.
func PivotRoot(root string) error { return mountError(root, unix.PivotRoot(root, root)) }

// ErrNotMounted reports that nothing is mounted at a path.
var ErrNotMounted = errors.New("not a mount point")

// Unmount unmounts the topmost mount at a path and does not follow a symbolic link there. It fails
// if the mount is in use; the error is ErrNotMounted if nothing is mounted or the path does not
// exist.
func Unmount(at string) error { return unmount(at, 0) }

// Detach is Unmount that also works for a mount in use: it disappears from the path at once, and
// its users keep it.
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
