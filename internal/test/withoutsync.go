package test

import (
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// WithoutSync calls do while the kernel refuses its thread each sync of a file, a directory or a file system with EIO.
func WithoutSync(t testing.TB, do func() error) error {
	t.Helper()
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}} // the number of the call
	for _, call := range []uint32{unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_SYNC_FILE_RANGE, unix.SYS_SYNCFS} {
		filter = append(filter,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EIO)})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	refused, done := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with this
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
			err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
		}
		if refused <- err; err == nil {
			done <- do()
		}
	}()
	if err := <-refused; err != nil {
		t.Skipf("needs seccomp: %v", err)
	}
	return <-done
}
