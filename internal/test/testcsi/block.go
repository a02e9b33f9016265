package testcsi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// loops are the loop devices on which the driver's block volumes are, with the directory for nodes of its own: in its
// container there are none of the devices that are made later.
type loops struct{ dir string }

// DeviceSize is how large a block volume is, in bytes.
const DeviceSize = 4 << 20

// loopMajor is the number of the kernel's loop driver.
const loopMajor = 7

// publish makes a node of a volume's device.
func (l loops) publish(volume, target string) error {
	device, err := l.attach(volume)
	if err != nil {
		return err
	}
	var is unix.Stat_t
	err = unix.Lstat(target, &is)
	if err == nil && is.Rdev == device && is.Mode&unix.S_IFMT == unix.S_IFBLK {
		return nil
	}
	if err == nil {
		return fmt.Errorf("%s is there already", target)
	}
	return unix.Mknod(target, unix.S_IFBLK|0o660, int(device))
}

// attach attaches the file of a volume to a loop device, unless it is, and returns the device's number.
func (l loops) attach(volume string) (uint64, error) {
	image, err := os.OpenFile(filepath.Join(volume, "device"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}
	defer image.Close()
	if err := image.Truncate(DeviceSize); err != nil {
		return 0, err
	}
	number, err := l.attached(volume)
	if err != nil || number >= 0 {
		return unix.Mkdev(loopMajor, uint32(max(number, 0))), err
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer control.Close()
	for range 100 { // others attach files meanwhile
		if number, err = unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE); err != nil {
			return 0, err
		}
		err = l.withLoop(number, func(fd int) error {
			return unix.IoctlLoopConfigure(fd, &unix.LoopConfig{Fd: uint32(image.Fd())})
		})
		if !errors.Is(err, unix.EBUSY) {
			return unix.Mkdev(loopMajor, uint32(number)), err
		}
	}
	return 0, err
}

// detach detaches the file of a volume, if it is attached.
func (l loops) detach(volume string) error {
	number, err := l.attached(volume)
	if err != nil || number < 0 {
		return err
	}
	return l.withLoop(number, func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0) })
}

// attached returns the number of the loop device that has the file of a volume, less than 0 if none has.
func (l loops) attached(volume string) (int, error) {
	var image unix.Stat_t
	if err := unix.Stat(filepath.Join(volume, "device"), &image); err != nil {
		return -1, nil //nolint:nilerr // it has none
	}
	all, err := filepath.Glob("/sys/block/loop*/loop")
	if err != nil {
		return -1, err
	}
	for _, one := range all {
		var number int
		if _, err := fmt.Sscanf(one, "/sys/block/loop%d/loop", &number); err != nil {
			return -1, err
		}
		var is *unix.LoopInfo64
		err := l.withLoop(number, func(fd int) (err error) {
			is, err = unix.IoctlLoopGetStatus64(fd)
			return err
		})
		if err == nil && is.Inode == image.Ino && is.Device == image.Dev {
			return number, nil
		}
	}
	return -1, nil
}

// withLoop calls f with a loop device that is open.
func (l loops) withLoop(number int, f func(fd int) error) error {
	node := filepath.Join(l.dir, fmt.Sprintf("loop%d", number))
	err := unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(loopMajor, uint32(number))))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	defer os.Remove(node)
	file, err := os.OpenFile(node, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	return f(int(file.Fd()))
}
