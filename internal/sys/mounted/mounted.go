// Package mounted says where file systems are mounted. It mounts nothing.
package mounted

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Nothing returns an error if a directory is or contains a mount point: removing the directory
// would continue into what is mounted. It returns nil for a directory that does not exist.
func Nothing(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil // the kernel's list is long where there are many pods
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	dir = filepath.Join(parent, filepath.Base(dir))
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return fmt.Errorf("listing mounts in %s: %w", dir, err)
	}
	if len(mounts) > 0 {
		return fmt.Errorf("not removing %s: %s is mounted", dir, mounts[0].Mountpoint)
	}
	return nil
}

// At reports whether what is at a path, or what a symbolic link there leads to, is another mount than the directory
// above, dir. It makes the kernel mount what it mounts on access. Before Linux 5.8 it compares devices: what is mounted
// there of the same file system cannot be seen then. The error is fs.ErrNotExist if the path does not exist.
func At(path, dir string) (bool, error) {
	var is, above unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MNT_ID, &is)
	if err == nil {
		err = unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_MNT_ID, &above)
	}
	return differ(path, &is, &above, err)
}

// In is At for a name in an open directory. It does not follow a symbolic link there.
func In(dir *os.File, name string) (bool, error) {
	var is, above unix.Statx_t
	err := unix.Statx(int(dir.Fd()), name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &is)
	if err == nil {
		err = unix.Statx(int(dir.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &above)
	}
	return differ(filepath.Join(dir.Name(), name), &is, &above, err)
}

func differ(path string, is, above *unix.Statx_t, err error) (bool, error) {
	if err != nil {
		return false, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	if is.Mask&above.Mask&unix.STATX_MNT_ID != 0 {
		return is.Mnt_id != above.Mnt_id, nil // two subvolumes of btrfs have two devices, and one mount
	}
	return is.Dev_major != above.Dev_major || is.Dev_minor != above.Dev_minor, nil
}
