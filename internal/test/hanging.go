package test

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// HangingMount mounts a real file system on a directory, which it makes, whose server never answers: an access to it
// ends when the test ends or calls end, which unmounts it. It skips the test where that cannot be mounted.
func HangingMount(t testing.TB, at string) (end func()) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("needs FUSE: %v", err)
	}
	server := os.NewFile(uintptr(fd), "fuse")
	Must(t, os.MkdirAll(at, 0o755))
	if err := unix.Mount("hangs", at, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)); err != nil {
		server.Close()
		t.Skipf("needs to mount: %v", err)
	}
	end = sync.OnceFunc(func() {
		if err := errors.Join(unix.Unmount(at, unix.MNT_DETACH|unix.MNT_FORCE), server.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	return end
}
