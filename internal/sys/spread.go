package sys

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// topDir is FS_TOPDIR_FL of linux/fs.h, which `chattr +T` sets.
const topDir = 0x20000

// Spread declares the directories in dir unrelated, so that ext4 puts each into a block group of
// its own. Within one group, ext4 inspects every inode that was deleted in the last minutes before
// it creates a file, which takes most of the time of a pod's start if many pods are created and
// removed. On other file systems Spread does nothing.
func Spread(dir string) error {
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	flags, err := unix.IoctlGetInt(int(d.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil && flags&topDir == 0 {
		err = unix.IoctlSetPointerInt(int(d.Fd()), unix.FS_IOC_SETFLAGS, flags|topDir)
	}
	for _, unsupported := range []error{unix.ENOTTY, unix.EOPNOTSUPP, unix.EINVAL, unix.EPERM, unix.ENOSYS} {
		if errors.Is(err, unsupported) {
			return nil
		}
	}
	return err
}
