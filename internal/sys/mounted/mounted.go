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

// At reports whether something is mounted on a path, or on what a symbolic link there leads to, or whether that is on
// another file system than the directory above, dir. Before Linux 5.8 a part of the same file system that is mounted
// there cannot be seen. The error is fs.ErrNotExist if the path does not exist.
func At(path, dir string) (bool, error) {
	var is, above unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_NO_AUTOMOUNT, 0, &is)
	if err == nil {
		err = unix.Statx(unix.AT_FDCWD, dir, unix.AT_NO_AUTOMOUNT, 0, &above)
	}
	if err != nil {
		return false, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	return is.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 ||
		is.Dev_major != above.Dev_major || is.Dev_minor != above.Dev_minor, nil
}
