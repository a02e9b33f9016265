package sys

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// BlockDevice returns the path of a block device that has a number, such as /dev/sda for 8:0; "" if
// there is none, as for a file system in memory.
func BlockDevice(number string) string {
	link, err := os.Readlink("/sys/dev/block/" + number)
	if err != nil {
		return ""
	}
	// The kernel replaces a slash in a device's name.
	return "/dev/" + strings.ReplaceAll(filepath.Base(link), "!", "/")
}

// DeviceOf returns the path of the block device with the file system of path; "" if it is on none.
func DeviceOf(path string) string {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return ""
	}
	return BlockDevice(fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
}
