package shim_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"podrun.io/podrun/internal/shim"
)

// TestMain makes the test binary a shim that does nothing.
func TestMain(m *testing.M) {
	if file := os.Getenv("HOLD"); file != "" {
		hold(file)
	}
	if slices.Contains(os.Args, "-id") {
		time.Sleep(time.Minute)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	address, namespace = "/run/containerd/containerd.sock", "podrun"
	// socketName is what containerd's shim makes of address, namespace and the group web.
	socketName = "20634eec636d3784ab4db842bce5d9bb99698b69b0ffab015c812455db24cbbb"
)

// sockets is a directory with a path that is short enough for them.
func sockets(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// running starts the test binary as containerd starts a shim, by way of a program that leads to it.
func running(t *testing.T, by ...string) int {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return runningAs(t, self, address, by...)
}

// runningAs is running by another name, and with another address of containerd.
func runningAs(t *testing.T, name, address string, by ...string) int {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := append(by, name, "-namespace", namespace, "-id", "abc", "-address", address)
	c := exec.Command(args[0], args[1:]...)
	c.Env = []string{"A=1", "OTEL_SERVICE_NAME=containerd-shim-abc"}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
	// The environment is what exec shows last.
	for of(c.Process.Pid, "exe") != self || of(c.Process.Pid, "environ") == "" {
		time.Sleep(time.Millisecond)
	}
	return c.Process.Pid
}

// of is a file or link of a process.
func of(pid int, name string) string {
	path := filepath.Join("/proc", strconv.Itoa(pid), name)
	if target, err := os.Readlink(path); err == nil {
		return target
	}
	text, _ := os.ReadFile(path)
	return string(text)
}

func TestStart(t *testing.T) {
	dir := sockets(t)
	first := running(t)
	m, err := shim.ModelOf(first, address, namespace, "web", filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	n, home := shim.NewNursery(), filepath.Join(dir, "home")
	if got := shim.SocketOf(home); got != "" {
		t.Errorf("socket %q", got)
	}
	for _, id := range []string{"def", "ghi"} { // the second in place of the first, which was killed
		if err := n.Start(m, home, "api", id); err != nil {
			t.Fatal(err)
		}
		if got := shim.SocketOf(home); got != m.Socket("api") {
			t.Errorf("socket %q", got)
		}
		conn, err := net.Dial("unix", shim.SocketOf(home))
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		pid := 0
		eventually(t, "the shim of "+id, func() bool { pid = childWith(t, id); return pid != 0 })
		if err := n.Start(m, home, "api", "second"); err != nil || childWith(t, "second") != 0 {
			t.Errorf("beside a shim that is there: %v", err)
		}
		for _, name := range []string{"cmdline", "environ", "oom_score_adj"} {
			want := strings.ReplaceAll(of(first, name), "abc", id)
			eventually(t, fmt.Sprintf("%s of %s to be %q", name, id, want), func() bool { return of(pid, name) == want })
		}
		if of(pid, "cwd") != home || of(pid, "fd/1") != os.DevNull || !strings.HasPrefix(of(pid, "fd/3"), "socket:") {
			t.Errorf("in %s with %s and %s", of(pid, "cwd"), of(pid, "fd/1"), of(pid, "fd/3"))
		}
		if info, err := os.Stat(m.Socket("api")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		n.Reap()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			n.Reap()
			time.Sleep(time.Millisecond)
		}
	}
}

// TestKillSparesAnotherContainerd has two shims with the same flags; one of them sees another file at containerd's
// address, as in a container.
func TestKillSparesAnotherContainerd(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := sockets(t)
	socket := filepath.Join(dir, "c.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	name := filepath.Join(t.TempDir(), "containerd-shim-test")
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, name)
	}
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := runningAs(t, name, socket, "unshare", "-m", "--propagation", "private", "sh", "-c",
		`mount -t tmpfs none "$0" && : >"$0/c.sock" && exec "$@"`, dir)
	ours := runningAs(t, name, socket)
	if of, mine := shim.Of(ours, "-address", socket); of != 0 || mine {
		t.Errorf("the shim itself descends from %d", of)
	}
	if err := shim.Kill(shim.Any, "-namespace", namespace, "-address", socket); err != nil {
		t.Fatal(err)
	}
	eventually(t, "our shim to end", func() bool { return of(ours, "cmdline") == "" })
	if of(elsewhere, "cmdline") == "" {
		t.Error("the shim of another containerd was killed")
	}
}

// TestForgedSocket: a user gives a socket a name that reads as a line of the kernel's, with the socket of another shim.
func TestForgedSocket(t *testing.T) {
	listening := func(name string) (inode uint64) {
		l, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		f, err := l.(*net.UnixListener).File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var stat syscall.Stat_t
		if err := syscall.Fstat(int(f.Fd()), &stat); err != nil {
			t.Fatal(err)
		}
		return stat.Ino
	}
	dir := sockets(t)
	own, other := listening(filepath.Join(dir, socketName)), listening(filepath.Join(dir, "other"))
	forged := fmt.Sprintf("@\n0 0 0 00010000 0 0 %d /%s", other, socketName)
	listening(forged + strings.Repeat(" ", 108-len(forged))) // as long as it can be
	want := []string{fmt.Sprintf("socket:[%d]", own)}
	if got, err := shim.Listening(address, namespace, "web"); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, not %q, %v", got, want, err)
	}
}

// eventually waits until it is so. A program that has been started is there a moment before its command line is.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// childWith is the child of this process that was started with the ID; 0 if none was.
func childWith(t *testing.T, id string) int {
	t.Helper()
	children, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range children {
		text, _ := os.ReadFile(file)
		for _, child := range strings.Fields(string(text)) {
			if pid, _ := strconv.Atoi(child); strings.Contains(of(pid, "cmdline"), "-id\x00"+id+"\x00") {
				return pid
			}
		}
	}
	return 0
}

// TestUnlike: ModelOf fails if this process's children would not run under the conditions of
// containerd's shim.
func TestUnlike(t *testing.T) {
	socket := filepath.Join(sockets(t), socketName)
	for name, by := range map[string][]string{
		"limits": {"prlimit", "--nofile=100:100"}, "mask": {"sh", "-c", `umask 0137; exec "$@"`, "sh"},
		"privileges": {"setpriv", "--no-new-privs"}, "debugging": {"sh", "-c", `exec "$@" -debug`, "sh"},
	} {
		t.Run(name, func(t *testing.T) {
			if m, err := shim.ModelOf(running(t, by...), address, namespace, "web", socket); err == nil {
				t.Errorf("%+v", m)
			}
		})
	}
	if _, err := shim.ModelOf(running(t), address, namespace, "web", filepath.Join(filepath.Dir(socket), "other")); err == nil {
		t.Error("its socket has another name")
	}
	if _, err := shim.ModelOf(1<<30, address, namespace, "web", socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a process that is not there: %v", err)
	}
}

func TestStartFails(t *testing.T) {
	dir := sockets(t)
	m, err := shim.ModelOf(running(t), address, namespace, "web", filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := shim.NewNursery().Start(m, filepath.Join(dir, "file/home"), "api", "def"); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("%v", err)
	}
}
