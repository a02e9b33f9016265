// Package daemontest provides the containerds with which the containerd driver is tested: podrun's
// embedded one, a stock one and Debian's, each with its own directories, and the images to load
// into them. It is not part of the product, and it contains no tests: those are in the packages
// that they test.
//
// Begin reading at Kinds and Daemon.
package daemontest

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/moby/sys/mountinfo"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/embedded"
	"podrun.io/podrun/internal/test/testcontainerd"
	"podrun.io/podrun/internal/test/testimage"
)

// Namespace is the containerd namespace that tests use.
const Namespace = "podrun"

// Main runs the test binary as what its arguments request, as podrun's own binary does: the shim,
// the embedded containerd or, by default, the tests. It returns the exit code. A TestMain need not
// do anything else.
func Main(m *testing.M) int {
	ctx := context.Background()
	if exit, ok := embedded.Dispatch(ctx, os.Args); ok {
		return exit
	}
	if len(os.Args) == 4 && os.Args[1] == "serve" {
		return serve(ctx, layout.Dirs{Root: os.Args[2], Run: os.Args[3]})
	}
	return m.Run()
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

// Daemon is a containerd for tests, with its own directories.
type Daemon struct {
	Dirs layout.Dirs
	// Address is the path of its socket.
	Address string
	// Shim is the path of the shim to use; empty means containerd's own.
	Shim string
	// Server is the running containerd; nil for the embedded one.
	Server *testcontainerd.Server
}

// Kinds are the containerds that the driver must support.
var Kinds = map[string]func(t testing.TB) Daemon{"embedded": Embedded, "stock": Stock, "debian": Debian}

// Dirs returns directories that are removed after the test, which fails if anything is still
// mounted in them. They are not in t.TempDir, because the paths of sockets must be short.
func Dirs(t testing.TB) layout.Dirs {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("containerd and runc need root")
	}
	dir, err := os.MkdirTemp("", "pa")
	if err == nil {
		err = os.Chmod(dir, 0o711) // pods' own users may pass through it, as through /run
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
			if err := syscall.Unmount(m.Mountpoint, syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return layout.Dirs{Root: filepath.Join(dir, "root"), Run: filepath.Join(dir, "run"), Log: filepath.Join(dir, "log")}
}

// Embedded starts podrun's embedded containerd, in a process that Main serves.
func Embedded(t testing.TB) Daemon {
	t.Helper()
	dirs := Dirs(t)
	lease := Ensure(t, dirs)
	t.Cleanup(func() {
		lease.Close()
		Eventually(t, "the daemon ends when nothing needs it", func() bool { return !embedded.Running(dirs) })
		Eventually(t, "its shims have ended", func() bool { return len(Shims(t, lease.Address())) == 0 })
	})
	return Daemon{Dirs: dirs, Address: lease.Address(), Shim: dirs.Embedded().Shim()}
}

// Ensure keeps the embedded containerd of these directories running as long as the lease is held.
func Ensure(t testing.TB, dirs layout.Dirs) *embedded.Lease {
	t.Helper()
	lease, err := embedded.Ensure(context.Background(), embedded.Options{
		Dirs: dirs, Args: []string{"serve", dirs.Root, dirs.Run},
	})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// Stock starts the stock containerd release whose client podrun uses.
func Stock(t testing.TB) Daemon { return other(t, testcontainerd.Stock) }

// Debian starts the containerd of Debian's package, which is an old version.
func Debian(t testing.TB) Daemon { return other(t, testcontainerd.Debian) }

func other(t testing.TB, kind string) Daemon {
	t.Helper()
	dirs := Dirs(t)
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
		Eventually(t, "containerd has cleared up", func() bool {
			mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(filepath.Join(dir, "state")))
			return err == nil && len(mounts) == 0
		})
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return Daemon{Dirs: dirs, Address: server.Address, Server: server}
}

// Client returns a client of the daemon that is closed at the end of the test, and a context with
// its namespace.
func (d Daemon) Client(t testing.TB) (context.Context, *client.Client) {
	t.Helper()
	c, err := client.New(d.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return namespaces.WithNamespace(context.Background(), Namespace), c
}

// NoTraces reports an error if containerd has anything of podrun's except images.
func (d Daemon) NoTraces(t testing.TB) {
	t.Helper()
	ctx, c := d.Client(t)
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

// Archive returns the path of an archive of a busybox image.
func Archive(t testing.TB, ref string, opts ...testimage.Option) (path string) {
	t.Helper()
	path, err := testimage.Busybox(t.TempDir(), ref, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Loader loads the images of an archive.
type Loader interface {
	Load(ctx context.Context, archive io.Reader) ([]string, error)
}

// Load loads the images of an archive file and returns their names.
func Load(t testing.TB, into Loader, path string) []string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	names, err := into.Load(context.Background(), f)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// Log returns a logger to the test's log.
func Log(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(writer{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type writer struct{ t testing.TB }

func (w writer) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// Eventually repeats so until it returns true, and reports an error after a minute.
func Eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if so() {
			return
		}
	}
	t.Errorf("not so within a minute: %s", what)
}

// Shims returns the command lines of a containerd's shims.
func Shims(t testing.TB, address string) (lines []string) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if line := strings.ReplaceAll(string(text), "\x00", " "); err == nil &&
			strings.Contains(line, "containerd-shim") && strings.Contains(line, " -address "+address) {
			lines = append(lines, line)
		}
	}
	return lines
}
