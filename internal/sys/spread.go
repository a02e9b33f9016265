package sys

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// topDir is FS_TOPDIR_FL of linux/fs.h, what `chattr +T` sets.
const topDir = 0x20000

// Spread tells a file system that the directories in dir are unrelated, so that ext4 puts each into a block group of its
// own. In one group it looks at every inode that was deleted in the last minutes before it makes a file, which takes most
// of a pod's start where many pods come and go. Other file systems need no telling.
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
