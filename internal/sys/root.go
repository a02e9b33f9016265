package sys

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// RootHides says whether a process has another root directory than its mount namespace. Who enters the namespace, as
// runc's exec does, comes out at the namespace's. So it is below a chroot, and in containers that were started there;
// after pivot_root the two are one.
func RootHides(pid int) (bool, error) {
	hides := false
	err := OnOwnThread(func() (err error) {
		hides, err = rootHides("/proc/" + strconv.Itoa(pid))
		return err
	})
	if err != nil {
		return false, fmt.Errorf("looking for the root of process %d: %w", pid, err)
	}
	return hides, nil
}

// rootHides takes the thread into the mount namespace.
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

// directory tells directories apart: by their mounts too, where the kernel has numbers for those.
func directory(path string) ([4]uint64, error) {
	var s unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_INO|unix.STATX_MNT_ID, &s); err != nil {
		return [4]uint64{}, err
	}
	return [4]uint64{uint64(s.Dev_major), uint64(s.Dev_minor), s.Ino, s.Mnt_id}, nil
}
