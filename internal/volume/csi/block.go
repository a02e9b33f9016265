package csi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys"
)

// A block volume is a device: its driver makes a node of it at the target, or binds one there, and containers get a
// node of the same device. It has no file system, so that it belongs to no group.

// The directories below blockDir.
const (
	publishName = "publish"
	stagingName = "staging"
)

// blockDir returns where block volumes are, which is where the kubelet has them.
func blockDir(dir string) string {
	return filepath.Join(dir, "plugins", "kubernetes.io", "csi", "volumeDevices")
}

// isThere reports whether the volume is mounted at its target, or its device is there. It accesses no file system but
// that of the target's directory. A link to a device is none: whatever it leads to may be another one later.
func (s *store) isThere(r Record) (bool, error) {
	if !r.Block {
		return s.isMounted(r.Target)
	}
	info, err := os.Lstat(r.Target)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && isBlockDevice(info), err
}

// isStale reports whether the device's number may be another device's by now. A mount ends with the machine, and keeps
// what is mounted; a node of a device does neither.
func (r Record) isStale() (bool, error) {
	if !r.Block {
		return false, nil
	}
	boot, err := sys.BootID()
	return boot != r.Boot || r.Published && r.Device != deviceAt(r.Target), err
}

// deviceAt returns which device a node is: its number, and how many disks the kernel had made before it, or before the
// disk of which it is a partition; "" if there is none. A kernel before 5.15 does not say the latter.
func deviceAt(node string) string {
	var is unix.Stat_t
	if err := unix.Lstat(node, &is); err != nil || is.Mode&unix.S_IFMT != unix.S_IFBLK {
		return ""
	}
	number := fmt.Sprintf("%d:%d", unix.Major(is.Rdev), unix.Minor(is.Rdev))
	dir := "/sys/dev/block/" + number + "/" // a link: what is above it is what is above its target
	if _, err := os.Stat(dir + "partition"); err == nil {
		dir += "../"
	}
	sequence, _ := os.ReadFile(dir + "diskseq") // trusted: the kernel's
	return strings.TrimSpace(number + " " + string(sequence))
}

func isBlockDevice(info fs.FileInfo) bool {
	return info.Mode()&(fs.ModeDevice|fs.ModeCharDevice) == fs.ModeDevice
}

// left returns an error if a driver has unpublished a volume, and something of it is still there.
func (s *store) left(r Record) error {
	mounted, err := s.isMounted(r.Target)
	if err == nil && mounted {
		err = fmt.Errorf("it succeeded, but %s is still mounted", r.Target)
	}
	if err == nil && r.Block {
		var there bool
		if there, err = s.isThere(r); there {
			err = fmt.Errorf("it succeeded, but the device %s is still there", r.Target)
		}
	}
	return err
}

// isEmpty reports whether what is at a path may be removed: a directory, or a file without content, on which a driver
// has bound a device.
func isEmpty(path string) bool {
	info, err := os.Lstat(path)
	return err != nil || info.IsDir() || info.Mode().IsRegular() && info.Size() == 0
}
