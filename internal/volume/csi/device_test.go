package csi

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/test"
)

// partition tells the kernel of the first partition of a disk, or that it is gone.
func partition(t *testing.T, disk *os.File, op int32) {
	t.Helper()
	const blkpg = 0x1269 // BLKPG in linux/blkpg.h
	of := struct {
		start, length int64
		number        int32
		names         [128]byte
	}{start: 4096, length: 512 << 10, number: 1}
	arg := unix.BlkpgIoctlArg{Op: op, Datalen: int32(unsafe.Sizeof(of)), Data: (*byte)(unsafe.Pointer(&of))}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, disk.Fd(), blkpg, uintptr(unsafe.Pointer(&arg))); errno != 0 {
		t.Fatal(errno)
	}
}

// attached calls f while a file with one partition is attached to a loop device.
func attached(t *testing.T, node string, f func()) {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "")
	test.Must(t, err)
	defer file.Close()
	test.Must(t, file.Truncate(1<<20))
	loop, err := os.OpenFile(node, os.O_RDWR, 0)
	test.Must(t, err)
	defer loop.Close()
	test.Must(t, unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_SET_FD, int(file.Fd())))
	defer func() { test.Must(t, unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0)) }()
	partition(t, loop, unix.BLKPG_ADD_PARTITION)
	defer partition(t, loop, unix.BLKPG_DEL_PARTITION)
	f()
}

// TestPartitionOfAnotherDisk: a partition is not another disk's that may have its number: the disk tells them apart.
func TestPartitionOfAnotherDisk(t *testing.T) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	test.Must(t, err)
	defer control.Close()
	number := 2000 + os.Getpid()%1000 // none of the free ones, which others may get meanwhile
	test.Must(t, unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_ADD, number))
	defer func() { test.Must(t, unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_REMOVE, number)) }()
	name, dir := fmt.Sprintf("loop%d", number), t.TempDir()
	// node makes a node of a device of sysfs.
	node := func(device string) string {
		var major, minor uint32
		text, err := os.ReadFile(filepath.Join("/sys/block", name, device, "dev"))
		test.Must(t, err)
		_, err = fmt.Sscanf(string(text), "%d:%d", &major, &minor)
		test.Must(t, err)
		at := filepath.Join(dir, "node"+device)
		_ = os.Remove(at)
		test.Must(t, unix.Mknod(at, unix.S_IFBLK|0o600, int(unix.Mkdev(major, minor))))
		return at
	}
	disk := node("")
	var before []string
	attached(t, disk, func() {
		before = strings.Fields(deviceAt(node(name + "p1")))
		if whole := strings.Fields(deviceAt(disk)); len(whole) != 2 || len(before) != 2 || whole[1] != before[1] {
			t.Errorf("the partition is %q, and its disk %q", before, whole)
		}
	})
	attached(t, disk, func() {
		after := strings.Fields(deviceAt(node(name + "p1")))
		if len(after) != 2 || after[1] == before[1] { // the number may be the same, or not
			t.Errorf("another disk's partition is %q, and that of the first is %q", after, before)
		}
	})
}
