package containerd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/embedded"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd"
)

// rig is a pod on a containerd, ready to be started.
type rig struct {
	*containerd.Runtime
	daemon daemon
	start  runtime.Start
	key    pod.Key
}

func newRig(t testing.TB, d daemon, line string, change ...func(p *v1.Pod)) rig {
	t.Helper()
	r := connect(t, d)
	load(t, r)
	return rigOn(t, d, r, line, change...)
}

func rigOn(t testing.TB, d daemon, r *containerd.Runtime, line string, change ...func(p *v1.Pod)) rig {
	t.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-node", UID: "uid-1"}}
	p.Spec.Containers = []v1.Container{{Name: "main", Image: imageRef, Command: []string{"sh", "-c", line}}}
	for _, f := range change {
		f(p)
	}
	if err := r.SavePod(p, "serve"); err != nil {
		t.Fatal(err)
	}
	if err := r.CreateSandbox(context.Background(), p, 0); err != nil {
		t.Fatal(err)
	}
	o, err := r.Inspect(context.Background(), pod.KeyOf(p))
	if err != nil {
		t.Fatal(err)
	}
	image, err := r.Resolve(context.Background(), imageRef)
	if err != nil {
		t.Fatal(err)
	}
	return rig{
		Runtime: r, daemon: d, key: pod.KeyOf(p),
		start: runtime.Start{Pod: p, Container: &p.Spec.Containers[0], Sandbox: o.Sandboxes[0], Image: image},
	}
}

// run starts the next attempt and returns it.
func (r *rig) run(t testing.TB) pod.Container {
	t.Helper()
	if err := r.StartContainer(context.Background(), r.start); err != nil {
		t.Fatal(err)
	}
	c := find(t, r.Runtime, r.key, r.start.Container.Name, r.start.Attempt)
	r.start.Attempt++
	return c
}

// ended waits for the attempt's end.
func (r *rig) ended(t testing.TB, attempt int) pod.Container {
	t.Helper()
	var c pod.Container
	eventually(t, "the instance exits", func() bool {
		c = find(t, r.Runtime, r.key, "main", attempt)
		return c.State == pod.Exited
	})
	return c
}

// raw is a client of the test's own.
func raw(t testing.TB, d daemon) (context.Context, *client.Client) {
	t.Helper()
	c, err := client.New(d.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return namespaces.WithNamespace(context.Background(), containerd.DefaultNamespace), c
}

func TestForeignContainersAreLeftAlone(t *testing.T) {
	d := embeddedDaemon(t)
	r := connect(t, d)
	ctx, c := raw(t, d)
	foreign, err := c.NewContainer(ctx, "foreign", client.WithNewSpec(oci.WithProcessArgs("true")), client.WithRuntime(d.shim, nil),
		client.WithContainerLabels(map[string]string{"io.kubernetes.pod.name": "x", "io.kubernetes.pod.uid": "y", "io.kubernetes.container.name": "z"}))
	if err != nil {
		t.Fatal(err)
	}
	if all, err := r.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	for what, err := range map[string]error{
		"signal": r.SignalContainer(t.Context(), "foreign", "KILL"),
		"reap":   r.ReapContainer(t.Context(), "foreign"),
		"remove": r.RemoveContainer(t.Context(), "foreign"),
	} {
		if err == nil {
			t.Errorf("%s took a container that is not podrun's", what)
		}
	}
	if err := foreign.Delete(ctx); err != nil {
		t.Error(err)
	}
}

// parent is the process that started pid.
func parent(t testing.TB, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "PPid:\t")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestLostExit: the shim is killed, and with it the only witness of the container's exit.
func TestLostExit(t *testing.T) {
	for name, start := range daemons {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, start(t), "sleep 1000")
			c := r.run(t)
			if err := syscall.Kill(parent(t, c.PID), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			lost := r.ended(t, 0)
			if lost.ExitCode != 255 || lost.Reason != "ContainerStatusUnknown" || lost.Message == "" || lost.Reaped ||
				lost.FinishedAt.Before(lost.StartedAt) || !lost.StartedAt.Equal(c.StartedAt) {
				t.Errorf("%+v", lost)
			}
			if err := r.ReapContainer(t.Context(), c.ID); err != nil {
				t.Fatal(err)
			}
			reaped := find(t, r.Runtime, r.key, "main", 0)
			if !reaped.Reaped || reaped.ExitCode != 255 || !reaped.FinishedAt.Equal(lost.FinishedAt) {
				t.Errorf("%+v", reaped)
			}
			// The pod's next container gets a shim of its own.
			if next := r.run(t); next.State != pod.Running {
				t.Errorf("%+v", next)
			}
		})
	}
}

// TestReboot: what is left of a container when the machine was switched off under it.
func TestReboot(t *testing.T) {
	d := embeddedDaemon(t)
	r := newRig(t, d, "sleep 1000")
	c := r.run(t)
	ctx, raw := raw(t, d)
	loaded, err := raw.LoadContainer(ctx, c.ID)
	if err != nil {
		t.Fatal(err)
	}
	task, err := loaded.Task(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := task.Delete(ctx, client.WithProcessKill); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(r.Dirs.Run + "/started"); err != nil {
		t.Fatal(err)
	}
	if c := find(t, r.Runtime, r.key, "main", 0); c.State != pod.Created {
		t.Errorf("no mark, same boot: %+v", c)
	}
	other := containers.Container{ID: c.ID, Labels: map[string]string{"podrun.io/boot": "another"}}
	if _, err := raw.ContainerService().Update(ctx, other, "labels.podrun.io/boot"); err != nil {
		t.Fatal(err)
	}
	if c := find(t, r.Runtime, r.key, "main", 0); c.State != pod.Exited || c.ExitCode != 255 || c.Boot != "another" {
		t.Errorf("another boot: %+v", c)
	}
}

func TestOutOfMemory(t *testing.T) {
	r := newRig(t, embeddedDaemon(t), `x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done`, func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("16Mi")}
	})
	c := r.run(t)
	for _, reaped := range []bool{false, true} {
		if c := r.ended(t, 0); c.ExitCode != 137 || c.Reason != "OOMKilled" || c.Reaped != reaped {
			t.Errorf("%+v", c)
		}
		if err := r.ReapContainer(t.Context(), c.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLimitsAndCgroups looks at what the kernel was told, and that the cgroups go with the data.
func TestLimitsAndCgroups(t *testing.T) {
	r := newRig(t, embeddedDaemon(t), "sleep 1000", func(p *v1.Pod) {
		p.UID = "0123456789abcdef0123456789abcdef"
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{
			v1.ResourceMemory: resource.MustParse("32Mi"), v1.ResourceCPU: resource.MustParse("500m"),
		}
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m")}
	})
	c := r.run(t)
	pods := "podrun/burstable/pod0123456789abcdef0123456789abcdef/"
	files := map[string]string{ // v1
		"memory/" + pods + c.ID + "/memory.limit_in_bytes": "33554432",
		"cpu/" + pods + c.ID + "/cpu.cfs_quota_us":         "50000",
		"cpu/" + pods + c.ID + "/cpu.shares":               "256",
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil { // v2
		files = map[string]string{pods + c.ID + "/memory.max": "33554432", pods + c.ID + "/cpu.max": "50000 100000"}
	}
	for file, want := range files {
		got, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", file))
		if err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s: %q, %v, want %s", file, got, err, want)
		}
	}
	clear(t, r.Runtime)
	left, err := filepath.Glob("/sys/fs/cgroup/*/" + pods)
	v2, _ := filepath.Glob("/sys/fs/cgroup/" + pods)
	if err != nil || len(left)+len(v2) != 0 {
		t.Errorf("cgroups left: %q %q, %v", left, v2, err)
	}
}

// TestPodrunKilled: the connection goes at every moment of a start, and the next podrun starts the same
// instance again.
func TestPodrunKilled(t *testing.T) {
	d := embeddedDaemon(t)
	r := newRig(t, d, "sleep 1000")
	for attempt := range 12 {
		r.start.Attempt = attempt
		first := dialOnly(t, d)
		done := make(chan error, 1)
		go func() { done <- first.StartContainer(context.Background(), r.start) }()
		time.Sleep(time.Duration(attempt*6) * time.Millisecond) // where to cut, not what to wait for
		first.Close()
		<-done
		if err := r.StartContainer(t.Context(), r.start); err != nil {
			t.Fatalf("cut after %d ms: %v", attempt*6, err)
		}
		if c := find(t, r.Runtime, r.key, "main", attempt); c.State != pod.Running {
			t.Errorf("cut after %d ms: %+v", attempt*6, c)
		}
	}
}

// dialOnly makes a Runtime that clears nothing up.
func dialOnly(t testing.TB, d daemon) *containerd.Runtime {
	t.Helper()
	r, err := containerd.New(context.Background(), options(t, d))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestDaemonKilled: containers outlive containerd, and the connection heals by itself.
func TestDaemonKilled(t *testing.T) {
	d := embeddedDaemon(t)
	r := newRig(t, d, "sleep 1000")
	c := r.run(t)
	rings, err := r.Rings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	killDaemon(t, d)
	for range rings { // until it is closed
	}
	if _, err := r.List(t.Context()); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("list: %v", err)
	}
	if _, err := r.Inspect(t.Context(), r.key); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("inspect: %v", err)
	}
	r.start.Attempt = 1
	err = r.StartContainer(t.Context(), r.start)
	if started := (*runtime.StartError)(nil); !errors.Is(err, runtime.ErrUnavailable) || errors.As(err, &started) {
		t.Errorf("start: %v", err)
	}
	revive(t, r)
	if now := find(t, r.Runtime, r.key, "main", 0); now != c {
		t.Errorf("%+v became %+v", c, now)
	}
	if c := r.run(t); c.State != pod.Running {
		t.Errorf("%+v", c)
	}
	clear(t, r.Runtime)
}

// killDaemon kills the embedded containerd.
func killDaemon(t *testing.T, d daemon) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(d.dirs.ContainerdState(), "daemon.lock"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the daemon is gone", func() bool { return !embedded.Running(d.dirs) })
}

// revive starts the embedded containerd again, until the test ends.
func revive(t *testing.T, r rig) {
	t.Helper()
	dirs := r.daemon.dirs
	lease, err := embedded.Ensure(t.Context(), embedded.Options{Dirs: dirs, Args: []string{"serve", dirs.Root, dirs.Run}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lease.Close() })
	eventually(t, "the connection heals", func() bool {
		_, err := r.List(t.Context())
		return err == nil
	})
}

// TestExitsWhileTheDaemonIsDown: containers that end while containerd is down, those with a shim of their
// own and those that share one, keep their exit.
func TestExitsWhileTheDaemonIsDown(t *testing.T) {
	d := embeddedDaemon(t)
	r := newRig(t, d, "until [ -e /end ]; do sleep 0.02; done; exit 5")
	var all []pod.Container
	for range 3 {
		all = append(all, r.run(t))
	}
	killDaemon(t, d)
	for _, c := range all {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/root/end", c.PID), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all ended", func() bool {
		for _, c := range all {
			if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.PID)); err == nil && !strings.Contains(string(stat), ") Z ") {
				return false
			}
		}
		return true
	})
	revive(t, r)
	for i := range all {
		c := r.ended(t, i)
		if c.ExitCode != 5 || c.Reason != "Error" || c.Reaped {
			t.Errorf("%+v", c)
		}
		if err := r.ReapContainer(t.Context(), c.ID); err != nil {
			t.Error(err)
		}
	}
	ctx, raw := raw(t, d)
	records := func() int {
		t.Helper()
		found, err := raw.SandboxStore().List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	// One for each container and one for the shared shim.
	if n := records(); n != 4 {
		t.Errorf("%d records", n)
	}
	if err := r.RemoveContainer(t.Context(), all[0].ID); err != nil {
		t.Error(err)
	}
	// Behind podrun's back the record stays, until the pod goes.
	if err := raw.ContainerService().Delete(ctx, all[1].ID); err != nil {
		t.Error(err)
	}
	if n := records(); n != 3 {
		t.Errorf("%d records", n)
	}
	clear(t, r.Runtime)
	if n := records(); n != 0 {
		t.Errorf("%d records are left", n)
	}
}

func TestNoDaemon(t *testing.T) {
	dirs := newDirs(t)
	begin := time.Now()
	_, err := containerd.New(t.Context(), options(t, daemon{dirs: dirs, address: filepath.Join(dirs.Run, "none.sock")}))
	if !errors.Is(err, runtime.ErrUnavailable) || !strings.Contains(err.Error(), "none.sock") || time.Since(begin) > time.Second {
		t.Errorf("after %s: %v", time.Since(begin), err)
	}
}

// TestListsAreTrue lists while instances come and go: no look may invent an exit or a state.
func TestListsAreTrue(t *testing.T) {
	r := newRig(t, embeddedDaemon(t), "exit 3")
	ctx, cancel := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	for _, look := range []func() (pod.Observed, error){
		func() (pod.Observed, error) { return r.Inspect(t.Context(), r.key) },
		func() (pod.Observed, error) {
			all, err := r.List(t.Context())
			if err != nil || len(all) != 1 {
				return pod.Observed{}, fmt.Errorf("%+v, %w", all, err)
			}
			return all[0], nil
		},
	} {
		looking.Go(func() {
			for ctx.Err() == nil {
				o, err := look()
				if err != nil {
					t.Error(err)
					return
				}
				for _, c := range o.Containers {
					if c.State == pod.Unknown || c.State == pod.Exited && (c.ExitCode != 3 || c.Reason != "Error") {
						t.Errorf("%+v", c)
					}
				}
			}
		})
	}
	for attempt := range 15 {
		c := r.run(t)
		r.ended(t, attempt)
		if err := r.ReapContainer(t.Context(), c.ID); err != nil {
			t.Error(err)
		}
		if err := r.RemoveContainer(t.Context(), c.ID); err != nil {
			t.Error(err)
		}
	}
	cancel()
	looking.Wait()
}

// TestOneShim: all containers of a sandbox, of this and of a later podrun, have one shim, which ends with
// the last of them.
func TestOneShim(t *testing.T) {
	for name, start := range daemons {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, start(t), "sleep 1000")
			shim := parent(t, r.run(t).PID)
			for range 2 {
				if other := parent(t, r.run(t).PID); other != shim {
					t.Errorf("shims %d and %d", shim, other)
				}
			}
			later := rig{Runtime: dialOnly(t, r.daemon), daemon: r.daemon, key: r.key, start: r.start}
			defer later.Close()
			for range 2 {
				if other := parent(t, later.run(t).PID); other != shim {
					t.Errorf("shims %d and %d", shim, other)
				}
			}
			clear(t, r.Runtime)
			eventually(t, "the shim ends", func() bool { return syscall.Kill(shim, 0) != nil })
			// The address that is remembered leads nowhere now.
			again := rigOn(t, r.daemon, r.Runtime, "sleep 1000")
			if c := again.run(t); c.State != pod.Running {
				t.Errorf("%+v", c)
			}
		})
	}
}

// TestRawLogs: what a container writes is in two files, whole, whoever reads them.
func TestRawLogs(t *testing.T) {
	r := newRig(t, embeddedDaemon(t), "echo out; echo err >&2")
	r.run(t)
	r.ended(t, 0)
	dir := r.Dirs.RawLog("uid-1", "main", 0)
	for name, want := range map[string]string{"stdout.raw": "out\n", "stderr.raw": "err\n"} {
		path := filepath.Join(dir, name)
		eventually(t, name+" is whole", func() bool {
			got, err := os.ReadFile(path)
			return err == nil && string(got) == want
		})
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

func TestMounts(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, embeddedDaemon(t), "echo written > /rw/file && cat /rw/inner/file && ! touch /ro/file && touch /root-is-writable && exit 42")
	for path, text := range map[string]string{"rw/.": "", "inner/file": "inner", "ro/.": ""} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if text != "" {
			if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.start.Mounts = []runtime.Mount{
		{HostPath: dir + "/inner", ContainerPath: "/rw/inner"},
		{HostPath: dir + "/rw", ContainerPath: "/rw"},
		{HostPath: dir + "/ro", ContainerPath: "/ro", ReadOnly: true},
	}
	r.run(t)
	if c := r.ended(t, 0); c.ExitCode != 42 {
		text, _ := os.ReadFile(filepath.Join(r.Dirs.RawLog("uid-1", "main", 0), "stderr.raw"))
		t.Errorf("%+v: %s", c, text)
	}
	if got, err := os.ReadFile(dir + "/rw/file"); err != nil || string(got) != "written\n" {
		t.Errorf("%q, %v", got, err)
	}
}
