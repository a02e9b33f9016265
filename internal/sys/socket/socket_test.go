package socket

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// listenAs serves a socket of root's as a user.
func listenAs(t *testing.T, path string, uid int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	if err != nil {
		t.Fatal(err)
	}
	// Only the thread becomes the user: package syscall would change all of them.
	runtime.LockOSThread()
	become := func(uid int) {
		if _, _, no := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); no != 0 {
			t.Error(no)
		}
	}
	become(uid)
	err = unix.Listen(fd, 9)
	become(0)
	runtime.UnlockOSThread()
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
}

// TestOnlyRootIsCalled checks that who listens is verified on the connection itself: a socket's owner says nothing of
// who listens once somebody has exchanged it.
func TestOnlyRootIsCalled(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for uid, want := range map[int]string{0: "unknown service", 1000: "/1000.sock: the user 1000 listens there, not root"} {
		path := filepath.Join(t.TempDir(), "1000.sock")
		listenAs(t, path, uid)
		conn, err := Client(path)
		if err != nil {
			t.Fatal(err)
		}
		err = conn.Invoke(t.Context(), "/some/call", &emptypb.Empty{}, &emptypb.Empty{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("user %d: %v", uid, err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}
