package containerd_test

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/moby/sys/mountinfo"

	v1 "k8s.io/api/core/v1"
	"podrun.io/podrun/internal/embedded"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd"
	"podrun.io/podrun/internal/sandbox"
	"podrun.io/podrun/internal/testcontainerd"
	"podrun.io/podrun/internal/testimage"
)

const imageRef = "registry.example/test/busybox:1"

// TestMain makes the test binary what podrun is: the shim, the embedded containerd or, else, the tests.
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
	if err := embedded.Serve(ctx, embedded.Options{Dirs: d, IdleGrace: 100 * time.Millisecond}); err != nil {
		os.Stderr.WriteString("serve: " + err.Error() + "\n")
		return 1
	}
	return 0
}

// daemon is a containerd to test with, with directories of its own.
type daemon struct {
	dirs    layout.Dirs
	address string
	shim    string
	// server is nil for the embedded one.
	server *testcontainerd.Server
}

// daemons are the containerds that the adapter must work with.
var daemons = map[string]func(t testing.TB) daemon{
	"embedded": embeddedDaemon, "stock": stockDaemon, "debian": debianDaemon,
}

// newDirs are directories that nothing is left in or mounted on after the test. Not t.TempDir: the paths
// of sockets must be short.
func newDirs(t testing.TB) layout.Dirs {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("containerd and runc need root")
	}
	dir, err := os.MkdirTemp("", "pa")
	if err == nil {
		err = os.Chmod(dir, 0o711) // pods' own users find their way through it, as through /run
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
		if err != nil {
			t.Error(err)
		}
		for _, m := range mounts {
			t.Errorf("left mounted: %s", m.Mountpoint)
			syscall.Unmount(m.Mountpoint, syscall.MNT_DETACH)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return layout.Dirs{Root: filepath.Join(dir, "root"), Run: filepath.Join(dir, "run"), Log: filepath.Join(dir, "log")}
}

func embeddedDaemon(t testing.TB) daemon {
	t.Helper()
	dirs := newDirs(t)
	lease, err := embedded.Ensure(context.Background(), embedded.Options{Dirs: dirs, Args: []string{"serve", dirs.Root, dirs.Run}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		lease.Close()
		eventually(t, "the daemon ends when nothing needs it", func() bool { return !embedded.Running(dirs) })
		eventually(t, "its shims have ended", func() bool { return len(shims(t, lease.Address())) == 0 })
	})
	return daemon{dirs: dirs, address: lease.Address(), shim: dirs.Shim()}
}

// stockDaemon is the containerd whose client podrun uses, as others run it; debianDaemon is an old one.
func stockDaemon(t testing.TB) daemon  { return otherDaemon(t, testcontainerd.Stock) }
func debianDaemon(t testing.TB) daemon { return otherDaemon(t, testcontainerd.Debian) }

func otherDaemon(t testing.TB, kind string) daemon {
	t.Helper()
	dirs := newDirs(t)
	bin, err := testcontainerd.Bin(context.Background(), kind)
	if err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(filepath.Dir(dirs.Run), "c")
	if err := os.Mkdir(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	server, err := testcontainerd.Start(context.Background(), bin, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		eventually(t, "containerd has cleared up", func() bool {
			mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(filepath.Join(dir, "state")))
			return err == nil && len(mounts) == 0
		})
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return daemon{dirs: dirs, address: server.Address, server: server}
}

// noNetwork leaves pods' network namespaces as they are.
type noNetwork struct{}

func (noNetwork) Setup(context.Context, string, string, *v1.Pod) ([]netip.Addr, error) {
	return nil, nil
}
func (noNetwork) Teardown(context.Context, string) error { return nil }
func (noNetwork) Holders() ([]string, error)             { return nil, nil }

// options are those of a Runtime on d.
func options(t testing.TB, d daemon) containerd.Options {
	log := slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return containerd.Options{
		Address: d.address, RuntimeName: d.shim, Dirs: d.dirs, Owner: "serve", Log: log,
		Sandboxes: sandbox.New(sandbox.Options{Dirs: d.dirs, Network: noNetwork{}, Log: log}),
	}
}

// connect makes a Runtime and sees to it that nothing is left in containerd after the test.
func connect(t testing.TB, d daemon) *containerd.Runtime {
	t.Helper()
	return connectWith(t, d, options(t, d))
}

func connectWith(t testing.TB, d daemon, o containerd.Options) *containerd.Runtime {
	t.Helper()
	r, err := containerd.New(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		clear(t, r)
		r.Close()
		noTraces(t, d)
	})
	return r
}

// noTraces sees that containerd holds nothing of podrun's but images.
func noTraces(t testing.TB, d daemon) {
	t.Helper()
	ctx, c := raw(t, d)
	defer c.Close()
	left, err := c.ContainerService().List(ctx)
	if err != nil || len(left) != 0 {
		t.Errorf("containers left: %+v, %v", left, err)
	}
	answer, err := c.TaskService().List(ctx, &tasks.ListTasksRequest{})
	if err != nil || len(answer.Tasks) != 0 {
		t.Errorf("tasks left: %+v, %v", answer, err)
	}
	leases, err := c.LeasesService().List(ctx)
	if err != nil || len(leases) != 0 {
		t.Errorf("leases left: %+v, %v", leases, err)
	}
	err = c.SnapshotService("overlayfs").Walk(ctx, func(_ context.Context, i snapshots.Info) error {
		if i.Kind != snapshots.KindCommitted {
			t.Errorf("snapshot left: %+v", i)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// clear ends and removes all that is left.
func clear(t testing.TB, r *containerd.Runtime) {
	ctx := context.Background()
	all, err := r.List(ctx)
	if err != nil {
		t.Error(err)
	}
	for _, o := range all {
		clearPod(t, r, o)
	}
}

func clearPod(t testing.TB, r *containerd.Runtime, o pod.Observed) {
	ctx := context.Background()
	for _, c := range o.Containers {
		if err := r.SignalContainer(ctx, c.ID, "KILL"); err != nil {
			t.Error(err)
		}
		eventually(t, "an instance is removed", func() bool { return r.RemoveContainer(ctx, c.ID) == nil })
	}
	for _, s := range o.Sandboxes {
		if err := r.RemoveSandbox(ctx, s.ID); err != nil {
			t.Error(err)
		}
	}
	for _, uid := range o.Data {
		if err := r.RemoveData(ctx, o.Key, uid); err != nil {
			t.Error(err)
		}
	}
}

// load puts the test image in.
func load(t testing.TB, r *containerd.Runtime, opts ...testimage.Option) {
	t.Helper()
	path, err := testimage.Busybox(t.TempDir(), imageRef, opts...)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	names, err := r.Load(context.Background(), f)
	if err != nil || len(names) != 1 || names[0] != imageRef {
		t.Fatalf("%q, %v", names, err)
	}
}

// testWriter keeps log lines for a test that fails.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// find returns the instance of the attempt.
func find(t testing.TB, r *containerd.Runtime, key pod.Key, name string, attempt int) pod.Container {
	t.Helper()
	o, err := r.Inspect(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range o.Containers {
		if c.Name == name && c.Attempt == attempt {
			return c
		}
	}
	t.Fatalf("no instance of %s attempt %d in %+v", name, attempt, o)
	return pod.Container{}
}

// eventually looks until it is so.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if so() {
			return
		}
	}
	t.Errorf("not so within 20 s: %s", what)
}

// shims are the command lines of a containerd's shims.
func shims(t testing.TB, address string) (lines []string) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if line := strings.ReplaceAll(string(text), "\x00", " "); err == nil && strings.Contains(line, "containerd-shim") && strings.Contains(line, " -address "+address) {
			lines = append(lines, line)
		}
	}
	return lines
}
