package sys

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// RootHides reports whether a process's root directory differs from the root of its mount
// namespace. A process that enters the namespace, as runc exec does, gets the namespace's root. The
// two differ below a chroot, and in containers that were started there; after pivot_root they are
// the same.
func RootHides(pid int) (bool, error) {
	hides := false
	err := OnOwnThread(func() (err error) {
		hides, err = rootHides("/proc/" + strconv.Itoa(pid))
		return err
	})
	if err != nil {
		return false, fmt.Errorf("inspecting the root directory of process %d: %w", pid, err)
	}
	return hides, nil
}

// rootHides moves the calling thread into the mount namespace.
func rootHides(process string) (bool, error) {
	namespace, err := unix.Open(process+"/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(namespace)
	own, err := directory(process + "/root")
	if err != nil {
		return false, err
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return false, err
	}
	if err := unix.Setns(namespace, unix.CLONE_NEWNS); err != nil {
		return false, err
	}
	entered, err := directory("/")
	return own != entered, err
}

// directory returns the identity of a directory, including its mount ID if the kernel provides
// that.
func directory(path string) ([4]uint64, error) {
	var s unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_INO|unix.STATX_MNT_ID, &s); err != nil {
		return [4]uint64{}, err
	}
	return [4]uint64{uint64(s.Dev_major), uint64(s.Dev_minor), s.Ino, s.Mnt_id}, nil
}
