package socket

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

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

// TestListenWhereOthersWrite: whatever lies where the socket is to be gives way, a link is not followed, and nobody has
// more connections than podrun can bear.
func TestListenWhereOthersWrite(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(at, target string) error{
		"nothing":     func(string, string) error { return nil },
		"a directory": func(at, _ string) error { return os.MkdirAll(at+"/x", 0o755) },
		"a link":      func(at, target string) error { return os.Symlink(target, at) },
		"what was made once": func(at, target string) error {
			return errors.Join(os.MkdirAll(at+".new/x", 0o755), os.WriteFile(at, nil, 0o644))
		},
	} {
		dir, err := os.MkdirTemp("", "s")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		at, target := filepath.Join(dir, "plugins", "kubelet.sock"), filepath.Join(dir, "target")
		if err := errors.Join(os.Mkdir(filepath.Dir(at), 0o755), os.WriteFile(target, []byte("text"), 0o644), put(at, target)); err != nil {
			t.Fatal(err)
		}
		l, err := Listen(at)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		info, err := os.Lstat(at)
		if err != nil || info.Mode() != fs.ModeSocket|0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		if info, err := os.Stat(target); err != nil || info.Mode() != 0o644 {
			t.Errorf("%s: the link's target is %v, %v", name, info, err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, ".podrun-*")); len(left) > 0 {
			t.Errorf("%s: left: %q", name, left)
		}
		if err := l.Remove(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMostConnections: a listener accepts so many connections at once.
func TestMostConnections(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	at := filepath.Join(dir, "d", "s")
	if err := os.Mkdir(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Remove()
	accepted := make(chan net.Conn, 2*mostConnections)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	for range mostConnections + 10 {
		c, err := net.Dial("unix", at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	var first net.Conn
	for range mostConnections {
		first = <-accepted
	}
	select {
	case <-accepted:
		t.Error("one more was accepted")
	case <-time.After(100 * time.Millisecond):
	}
	_ = first.Close()
	defer (<-accepted).Close()
}
