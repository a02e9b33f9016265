package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/moby/sys/mountinfo"

	"podrun.io/podrun/internal/embedded"
	"podrun.io/podrun/internal/layout"
)

const grace = 100 * time.Millisecond

// TestMain makes the test binary what podrun is: the shim, the daemon or, else, the tests.
func TestMain(m *testing.M) {
	ctx := context.Background()
	if exit, ok := embedded.Dispatch(ctx, os.Args); ok {
		os.Exit(exit)
	}
	if len(os.Args) == 4 && os.Args[1] == "serve" {
		os.Exit(serve(ctx, layout.Dirs{Root: os.Args[2], Run: os.Args[3]}))
	}
	os.Exit(m.Run())
}

func serve(ctx context.Context, d layout.Dirs) int {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := embedded.Serve(ctx, embedded.Options{Dirs: d, Log: log, IdleGrace: grace}); err != nil {
		os.Stderr.WriteString("serve: " + err.Error() + "\n")
		return 1
	}
	return 0
}

// options are those of a daemon in new directories, which is ended after the test.
func options(t *testing.T) embedded.Options {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("containerd and runc need root")
	}
	// Not t.TempDir: sockets' paths must be short.
	dir, err := os.MkdirTemp("", "pe")
	if err != nil {
		t.Fatal(err)
	}
	d := layout.Dirs{Root: filepath.Join(dir, "root"), Run: filepath.Join(dir, "run")}
	t.Cleanup(func() {
		if t.Failed() {
			b, _ := os.ReadFile(filepath.Join(d.Containerd(), "containerd.log"))
			t.Logf("containerd's log:\n%s", b)
		}
		if pid := daemonPID(t, d); pid != 0 && embedded.Running(d) {
			syscall.Kill(pid, syscall.SIGTERM)
			eventually(t, "the daemon ends on SIGTERM", func() bool { return !embedded.Running(d) })
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return embedded.Options{Dirs: d, Args: []string{"serve", d.Root, d.Run}}
}

func ensure(t *testing.T, o embedded.Options) *embedded.Lease {
	t.Helper()
	l, err := embedded.Ensure(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func daemonPID(t *testing.T, d layout.Dirs) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(d.ContainerdState(), "daemon.lock"))
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not so within 10 s: %s", what)
}

func dial(t *testing.T, l *embedded.Lease) (context.Context, *client.Client) {
	t.Helper()
	c, err := client.New(l.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return namespaces.WithNamespace(t.Context(), "embeddedtest"), c
}

func TestEnsureStartsOnceAndEndsByItself(t *testing.T) {
	o := options(t)
	if embedded.Running(o.Dirs) {
		t.Fatal("running before the start")
	}
	begin := time.Now()
	first := ensure(t, o)
	cold := time.Since(begin)
	pid := daemonPID(t, o.Dirs)
	ctx, c := dial(t, first)
	if v, err := c.Version(ctx); err != nil || v.Version == "" {
		t.Fatalf("version %v, %v", v, err)
	}
	begin = time.Now()
	second := ensure(t, o)
	t.Logf("ready: cold %v, warm %v; daemon's %s", cold, time.Since(begin), rss(t, pid))
	if got := daemonPID(t, o.Dirs); got != pid {
		t.Errorf("second Ensure started daemon %d beside %d", got, pid)
	}
	if sid, err := syscallGetsid(pid); err != nil || sid != pid {
		t.Errorf("the daemon's session is %d, %v; want its own", sid, err)
	}
	if st, err := os.Stat(first.Address()); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket %v, %v; want mode 0600", st, err)
	}
	if n := first.Snapshotter(); n != "overlayfs" && n != "native" {
		t.Errorf("snapshotter %q", n)
	}

	first.Close()
	time.Sleep(3 * grace) // it has to stay: there is nothing to wait for
	if !embedded.Running(o.Dirs) {
		t.Fatal("ended while a lease was held")
	}
	second.Close()
	eventually(t, "the daemon ends without leases", func() bool { return !embedded.Running(o.Dirs) })
	for _, left := range []string{first.Address(), filepath.Join(o.Dirs.ContainerdState(), "ttrpc.sock")} {
		if _, err := os.Lstat(left); err == nil {
			t.Errorf("left behind: %s", left)
		}
	}
	noMounts(t, o.Dirs)
	if ensure(t, o); daemonPID(t, o.Dirs) == pid {
		t.Error("no new daemon after the old one's end")
	}
}

func TestConcurrentEnsureMakesOneDaemon(t *testing.T) {
	o := options(t)
	leases := make([]*embedded.Lease, 8)
	errs := make([]error, len(leases))
	var all sync.WaitGroup
	for i := range leases {
		all.Go(func() { leases[i], errs[i] = embedded.Ensure(t.Context(), o) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if pids := processes(t, "serve\x00"+o.Dirs.Root); len(pids) != 1 {
		t.Errorf("daemons %v", pids)
	}
	for _, l := range leases {
		l.Close()
	}
	eventually(t, "the daemon ends", func() bool { return !embedded.Running(o.Dirs) })
}

// TestEnsureWhileEnding lets clients come at the moment when the daemon ends.
func TestEnsureWhileEnding(t *testing.T) {
	o := options(t)
	for i := range 8 {
		l, err := embedded.Ensure(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, c := dial(t, l)
		if _, err := c.Version(ctx); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		l.Close()
		time.Sleep(grace - 20*time.Millisecond + time.Duration(i)*5*time.Millisecond)
	}
}

func TestEnsureAfterKill(t *testing.T) {
	o := options(t)
	ensure(t, o)
	pid := daemonPID(t, o.Dirs)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ctx, c := dial(t, ensure(t, o))
	if _, err := c.Version(ctx); err != nil {
		t.Error(err)
	}
	if daemonPID(t, o.Dirs) == pid {
		t.Error("the killed daemon is still noted")
	}
	eventually(t, "the killed daemon is reaped", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
}

func TestEnsureSaysWhatIsWrong(t *testing.T) {
	o := options(t)
	t.Run("long path", func(t *testing.T) {
		o := o
		o.Dirs.Run = filepath.Join(o.Dirs.Run, strings.Repeat("x", 100))
		if _, err := embedded.Ensure(t.Context(), o); err == nil || !strings.Contains(err.Error(), "use a shorter run directory") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("daemon dies", func(t *testing.T) {
		o := o
		o.Args = []string{"serve", "/dev/null", o.Dirs.Run}
		_, err := embedded.Ensure(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), "last words") || !strings.Contains(err.Error(), "/dev/null") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("no runc", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		if _, err := embedded.Ensure(t.Context(), o); !errors.Is(err, embedded.ErrNoRunc) {
			t.Errorf("error %v", err)
		}
	})
	if embedded.Running(o.Dirs) {
		t.Error("a daemon was started")
	}
}

func TestServeRefusesASecondDaemon(t *testing.T) {
	o := options(t)
	ensure(t, o)
	if err := embedded.Serve(t.Context(), o); !errors.Is(err, embedded.ErrRunning) {
		t.Errorf("error %v", err)
	}
}

func TestServeRefusesASharedRoot(t *testing.T) {
	o, other := options(t), options(t)
	ensure(t, o)
	other.Dirs.Root = o.Dirs.Root
	other.Args = []string{"serve", other.Dirs.Root, other.Dirs.Run}
	if _, err := embedded.Ensure(t.Context(), other); err == nil || !strings.Contains(err.Error(), "another run directory") {
		t.Errorf("error %v", err)
	}
}

// TestOnOverlay puts the root directory where CI containers have it: on an overlay, on which there can be
// no second one, and apart from the program, which cannot be linked then.
func TestOnOverlay(t *testing.T) {
	o := options(t)
	layers := t.TempDir()
	for _, dir := range []string{o.Dirs.Root, layers + "/lower", layers + "/upper", layers + "/work"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	opts := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", layers)
	if err := syscall.Mount("overlay", o.Dirs.Root, "overlay", 0, opts); err != nil {
		t.Skip("no overlay can be mounted here either:", err)
	}
	t.Cleanup(func() {
		eventually(t, "the daemon ends", func() bool { return !embedded.Running(o.Dirs) })
		eventually(t, "nothing uses the overlay", func() bool { return syscall.Unmount(o.Dirs.Root, 0) == nil })
	})
	l := ensure(t, o)
	if l.Snapshotter() != "native" {
		t.Errorf("snapshotter %q", l.Snapshotter())
	}
	ctx, c := dial(t, l)
	if _, err := c.SnapshotService(l.Snapshotter()).Prepare(ctx, "first", ""); err != nil {
		t.Error(err)
	}
	before := shimIsProgram(t, o.Dirs)
	l.Close()
	eventually(t, "the daemon ends", func() bool { return !embedded.Running(o.Dirs) })
	ensure(t, o).Close()
	if !os.SameFile(before, shimIsProgram(t, o.Dirs)) {
		t.Error("the shim was copied again")
	}
}

func TestShimLinkIsRefreshed(t *testing.T) {
	o := options(t)
	if err := os.MkdirAll(filepath.Dir(o.Dirs.Shim()), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(o.Dirs.Shim(), []byte("an older podrun"), 0o755); err != nil {
		t.Fatal(err)
	}
	ensure(t, o).Close()
	shimIsProgram(t, o.Dirs)
}

func shimIsProgram(t *testing.T, d layout.Dirs) os.FileInfo {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(d.Shim()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the shim has %d bytes, %v; the program has %d", len(got), err, len(want))
	}
	st, err := os.Stat(d.Shim())
	if err != nil || st.Mode().Perm()&0o100 == 0 {
		t.Fatalf("shim %v, %v; want it executable", st, err)
	}
	return st
}

func noMounts(t *testing.T, d layout.Dirs) {
	t.Helper()
	for _, dir := range []string{d.Root, d.Run} {
		left, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
		if err != nil || len(left) > 0 {
			t.Errorf("mounts left in %s: %v, %v", dir, left, err)
		}
	}
}

// processes returns the pids of those whose command line contains part.
func processes(t *testing.T, part string) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if b, err := os.ReadFile(f); err != nil || !strings.Contains(string(b), part) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

func rss(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "VmRSS") {
			return strings.Join(strings.Fields(line), " ")
		}
	}
	return "VmRSS unknown"
}

func syscallGetsid(pid int) (int, error) {
	sid, _, errno := syscall.Syscall(syscall.SYS_GETSID, uintptr(pid), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(sid), nil
}
