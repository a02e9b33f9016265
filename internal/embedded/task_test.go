package embedded_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/embedded"
)

// startTask runs sleep in a container without an image.
func startTask(ctx context.Context, t *testing.T, c *client.Client, d layout.Dirs) (client.Container, client.Task) {
	t.Helper()
	ctr, err := c.NewContainer(ctx, "sleeper",
		client.WithRuntime(d.Embedded().Shim(), &runcoptions.Options{Root: d.Runc()}),
		client.WithNewSpec(
			oci.WithRootFSPath(busybox(t)),
			oci.WithProcessArgs("/bin/busybox", "sleep", "1000"),
			oci.WithAnnotations(map[string]string{"io.containerd.runc.v2.group": "sleepers"}),
			oci.WithCgroup(fmt.Sprintf("/podrun-embedded-test-%d", os.Getpid())),
		))
	if err != nil {
		t.Fatal(err)
	}
	task, err := ctr.NewTask(ctx, cio.NullIO)
	if err != nil {
		t.Fatal(err)
	}
	pid := int(task.Pid())
	t.Cleanup(func() {
		if t.Failed() {
			for _, p := range append(processes(t, d.Embedded().Shim()), pid) {
				syscall.Kill(p, syscall.SIGKILL)
			}
		}
	})
	if err := task.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return ctr, task
}

func busybox(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/usr/bin/busybox")
	if err != nil {
		t.Skip("needs Debian's busybox-static:", err)
	}
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin", "busybox"), b, 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestTaskKeepsTheDaemonAndSurvivesIt(t *testing.T) {
	o := options(t)
	lease := ensure(t, o)
	ctx, c := dial(t, lease)
	ctr, task := startTask(ctx, t, c, o.Dirs)
	if _, err := os.Stat(filepath.Join(embedded.BundleDir(o.Dirs, "embeddedtest", "sleeper"), "bootstrap.json")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(o.Dirs.Runc(), "embeddedtest", "sleeper")); err != nil {
		t.Errorf("runc keeps its state elsewhere: %v", err)
	}

	// Dying and ended daemons leave the container alone, and the next one adopts it.
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		pid := daemonPID(t, o.Dirs)
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the daemon is gone", func() bool { return !embedded.Running(o.Dirs) })
		lease.Close()
		lease = ensure(t, o)
		ctx, c = dial(t, lease)
		adopted, err := c.LoadContainer(ctx, "sleeper")
		if err != nil {
			t.Fatal(err)
		}
		got, err := adopted.Task(ctx, nil)
		if err != nil {
			t.Fatalf("after %v: %v", sig, err)
		}
		if st, err := got.Status(ctx); err != nil || st.Status != client.Running || got.Pid() != task.Pid() {
			t.Fatalf("after %v: pid %d, was %d; %v, %v", sig, got.Pid(), task.Pid(), st, err)
		}
		ctr, task = adopted, got
	}

	// Without leases the task alone keeps the daemon.
	pid := daemonPID(t, o.Dirs)
	lease.Close()
	time.Sleep(5 * grace) // it has to stay: there is nothing to wait for
	if !embedded.Running(o.Dirs) {
		t.Fatal("ended although a task runs")
	}
	exited, err := task.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Kill(ctx, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-exited
	// The daemon may end before its answer has arrived: nobody who keeps it waits for one.
	if _, err := task.Delete(ctx); err != nil && !errdefs.IsUnavailable(err) {
		t.Fatal(err)
	}
	eventually(t, "the daemon ends when the task is gone", func() bool { return !embedded.Running(o.Dirs) })
	noMounts(t, o.Dirs)
	// A shim answers that its task is gone before it ends.
	eventually(t, "the shim ends", func() bool { return len(processes(t, o.Dirs.Embedded().Shim())) == 0 })

	sockets := filepath.Join(o.Dirs.Embedded().State(), "s")
	if left, err := os.ReadDir(sockets); err != nil || len(left) > 0 {
		t.Errorf("sockets left: %v, %v", left, err)
	}

	// The container's record did not keep it, and is still there; what a killed shim leaves is not.
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(sockets, "dead"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	lease = ensure(t, o)
	if left, err := os.ReadDir(sockets); err != nil || len(left) > 0 {
		t.Errorf("sockets left of a killed shim: %v, %v", left, err)
	}
	if daemonPID(t, o.Dirs) == pid {
		t.Error("not a new daemon")
	}
	ctx, c = dial(t, lease)
	ctr, err = c.LoadContainer(ctx, ctr.ID())
	if err != nil {
		t.Fatal(err)
	}
	if err := ctr.Delete(ctx); err != nil {
		t.Error(err)
	}
}
