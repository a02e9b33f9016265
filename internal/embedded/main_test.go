package embedded_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/moby/sys/mountinfo"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/embedded"
)

const (
	grace = 100 * time.Millisecond
	// ownShimOff is the environment variable with which a daemon's shim is the test binary.
	ownShimOff = "PODRUN_TEST_WITHOUT_SHIM"
)

// TestMain makes the test binary what podrun is: the shim, the daemon or, else, the tests.
func TestMain(m *testing.M) {
	ctx := context.Background()
	if exit, ok := embedded.Dispatch(ctx, os.Args); ok {
		os.Exit(exit)
	}
	if len(os.Args) == 4 && os.Args[1] == "serve" {
		os.Exit(serve(ctx, layout.Dirs{Root: os.Args[2], Run: os.Args[3]}))
	}
	if len(os.Args) == 2 && os.Args[1] == "killed" {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	os.Exit(m.Run())
}

func serve(ctx context.Context, d layout.Dirs) int {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if os.Getenv(ownShimOff) != "" {
		embedded.WithoutProgram()
	}
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
	// Not t.TempDir, and not "run": sockets' paths must be short, those of shims most of all.
	dir, err := os.MkdirTemp("", "pe")
	if err != nil {
		t.Fatal(err)
	}
	d := layout.Dirs{Root: filepath.Join(dir, "root"), Run: filepath.Join(dir, "r")}
	t.Cleanup(func() {
		if t.Failed() {
			b, _ := os.ReadFile(filepath.Join(d.Embedded().Data(), "containerd.log"))
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
	b, err := os.ReadFile(filepath.Join(d.Embedded().State(), "daemon.lock"))
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
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
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
