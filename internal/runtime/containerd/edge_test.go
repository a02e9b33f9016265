package containerd_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
)

// rig is a pod on a containerd, ready to be started.
type rig struct {
	*Runtime
	daemon daemontest.Daemon
	start  runtime.Start
	key    pod.Key
}

func newRig(t testing.TB, d daemontest.Daemon, line string, change ...func(p *v1.Pod)) rig {
	t.Helper()
	r := connect(t, d)
	load(t, r)
	return rigOn(t, d, r, line, change...)
}

func rigOn(t testing.TB, d daemontest.Daemon, r *Runtime, line string, change ...func(p *v1.Pod)) rig {
	t.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-node", UID: pod.UID(rand.Text())}}
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

// run starts the next attempt and returns its instance.
func (r *rig) run(t testing.TB) pod.Container {
	t.Helper()
	if err := r.StartContainer(context.Background(), r.start); err != nil {
		t.Fatal(err)
	}
	c := find(t, r.Runtime, r.key, r.start.Container.Name, r.start.Attempt)
	r.start.Attempt++
	return c
}

// ended waits until the attempt has exited.
func (r *rig) ended(t testing.TB, attempt int) pod.Container {
	t.Helper()
	var c pod.Container
	daemontest.Eventually(t, "the instance exits", func() bool {
		c = find(t, r.Runtime, r.key, "main", attempt)
		return c.State == pod.Exited
	})
	return c
}

func TestForeignContainersAreLeftAlone(t *testing.T) {
	d := daemontest.Embedded(t)
	r := connect(t, d)
	ctx, c := d.Client(t)
	labels := func(namespace, name, uid, container, attempt string) map[string]string {
		return map[string]string{
			"io.kubernetes.pod.namespace": namespace, "io.kubernetes.pod.name": name, "io.kubernetes.pod.uid": uid,
			"io.kubernetes.container.name": container, "podrun.io/attempt": attempt,
		}
	}
	ours := func(n int) string { return fmt.Sprintf("%032x", n) }
	for id, labels := range map[string]map[string]string{
		"foreign": {"io.kubernetes.pod.name": "x", "io.kubernetes.pod.uid": "y", "io.kubernetes.container.name": "z"},
		// An image has labels too: whoever runs it, and a kubelet on the same containerd.
		"debug":                 labels("a", "web", "u", "c", "0"),
		strings.Repeat("a", 64): labels("a", "web", "u", "c", "0"),
		ours(1):                 labels("a", "/../../../../etc/shadow", "u", "c", "0"),
		ours(2):                 labels("../../etc", "web", "u", "c", "0"),
		ours(3):                 labels("a", "web", "../..", "c", "0"),
		ours(4):                 labels("a", "web", "u", "../c", "0"),
		ours(5):                 labels("a", "web", "u", "c", "-1"),
		ours(6):                 labels("", "web", "u", "c", "0"),
	} {
		foreign, err := c.NewContainer(ctx, id, client.WithNewSpec(oci.WithProcessArgs("true")), client.WithRuntime(d.Shim, nil),
			client.WithContainerLabels(labels))
		if err != nil {
			t.Fatal(err)
		}
		if all, err := r.List(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("%s: %+v, %v", id, all, err)
		}
		for what, err := range map[string]error{
			"signal": r.SignalContainer(t.Context(), id, "KILL"),
			"reap":   r.ReapContainer(t.Context(), id, ""),
			"remove": r.RemoveContainer(t.Context(), id),
		} {
			if err == nil {
				t.Errorf("%s took %s, which is not podrun's", what, id)
			}
		}
		if err := foreign.Delete(ctx); err != nil {
			t.Error(err)
		}
	}
}

// parent returns the parent process of pid.
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

// TestOutOfMemory checks that the reason is OOMKilled whichever of the container's processes the
// kernel killed, and whatever the container does then, and that it is not OOMKilled if another
// process sent the signal.
func TestOutOfMemory(t *testing.T) {
	const eat = `x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done`
	d := daemontest.Embedded(t)
	first := newRig(t, d, "true")
	for name, c := range map[string]struct {
		line, reason string
		code         int
	}{
		"first": {eat, "OOMKilled", 137},
		"child": {"sh -c '" + eat + "'; exit 3", "OOMKilled", 3},
		"other": {"sh -c 'kill -9 $$$$'; exit $?", "Error", 137},
		"fails": {"exit 3", "Error", 3},
		"ends":  {"true", "Completed", 0},
	} {
		r := rigOn(t, d, first.Runtime, c.line, named(name+"-node"), func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("16Mi")}
		})
		id := r.run(t).ID
		for _, reaped := range []bool{false, true} {
			if got := r.ended(t, 0); got.ExitCode != c.code || got.Reason != c.reason || got.Reaped != reaped {
				t.Errorf("%s: %+v", name, got)
			}
			if err := r.ReapContainer(t.Context(), id, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestChildOutOfMemory checks that the reason is reported too if the main process survives and
// exits later with its own code.
func TestChildOutOfMemory(t *testing.T) {
	r := newRig(t, daemontest.Embedded(t), `(x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done) & wait $!; exit 3`, func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("16Mi")}
	})
	r.run(t)
	// Under cgroup v2 the kernel may kill all of the container together.
	if c := r.ended(t, 0); c.ExitCode != 3 && c.ExitCode != 137 || c.Reason != "OOMKilled" {
		t.Errorf("%+v", c)
	}
}

// TestLimitsAndCgroups checks the limits that the kernel has, and that the cgroups are removed with
// the data.
func TestLimitsAndCgroups(t *testing.T) {
	r := newRig(t, daemontest.Embedded(t), "sleep 1000", func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{
			v1.ResourceMemory: resource.MustParse("32Mi"), v1.ResourceCPU: resource.MustParse("500m"),
		}
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m")}
	})
	c := r.run(t)
	pods := "podrun/burstable/pod" + string(r.start.Pod.UID) + "/"
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

// TestRawLogs checks that a container's output is in two files, complete, whether anything reads
// them or not.
func TestRawLogs(t *testing.T) {
	r := newRig(t, daemontest.Embedded(t), "echo out; echo err >&2")
	r.run(t)
	r.ended(t, 0)
	dir := r.Dirs.Revision(r.start.Pod.UID).RawLog("main", find(t, r.Runtime, r.key, "main", 0).ID)
	for name, want := range map[string]string{"stdout.raw": "out\n", "stderr.raw": "err\n"} {
		path := filepath.Join(dir, name)
		daemontest.Eventually(t, name+" is whole", func() bool {
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
	r := newRig(t, daemontest.Embedded(t), "echo written > /rw/file && cat /rw/inner/file && ! touch /ro/file && touch /root-is-writable && exit 42")
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
	r.start.Mounts = []pod.Mount{
		{HostPath: dir + "/inner", ContainerPath: "/rw/inner"},
		{HostPath: dir + "/rw", ContainerPath: "/rw"},
		{HostPath: dir + "/ro", ContainerPath: "/ro", ReadOnly: true},
	}
	r.run(t)
	if c := r.ended(t, 0); c.ExitCode != 42 {
		text, _ := os.ReadFile(filepath.Join(r.Dirs.Revision(r.start.Pod.UID).RawLog("main", find(t, r.Runtime, r.key, "main", 0).ID), "stderr.raw"))
		t.Errorf("%+v: %s", c, text)
	}
	if got, err := os.ReadFile(dir + "/rw/file"); err != nil || string(got) != "written\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestExecLeavesNoPipes checks that the pipes of a command are removed with it, also if its
// container exits meanwhile and is reaped at once.
func TestExecLeavesNoPipes(t *testing.T) {
	d := daemontest.Embedded(t)
	r := newRig(t, d, "sleep 1000")
	for range 3 {
		c := r.run(t)
		if code, err := r.Exec(t.Context(), c.ID, []string{"true"}, runtime.ExecIO{Stdout: io.Discard}); err != nil || code != 0 {
			t.Fatal(code, err)
		}
		ended := make(chan struct{})
		held := &held{begun: make(chan struct{}), release: make(chan struct{})}
		go func() {
			defer close(ended)
			_, _ = r.Exec(t.Context(), c.ID, []string{"sh", "-c", "echo begun; sleep 1000"}, runtime.ExecIO{Stdout: held})
		}()
		<-held.begun
		if err := r.SignalContainer(t.Context(), c.ID, "KILL"); err != nil {
			t.Fatal(err)
		}
		r.ended(t, c.Attempt)
		if err := r.ReapContainer(t.Context(), c.ID, ""); err != nil {
			t.Fatal(err)
		}
		close(held.release)
		<-ended
		if left, err := filepath.Glob(d.Dirs.Fifos() + "/*/*"); err != nil || len(left) > 0 {
			t.Fatal(left, err)
		}
	}
}

// held is an output that accepts its first bytes, reports that, and accepts nothing more until it
// is released.
type held struct {
	once           sync.Once
	begun, release chan struct{}
}

func (h *held) Write(p []byte) (int, error) {
	h.once.Do(func() { close(h.begun) })
	<-h.release
	return len(p), nil
}

// TestInstancesOfAnotherPodrun checks that an inspection finds what another podrun has started
// since the last list.
func TestInstancesOfAnotherPodrun(t *testing.T) {
	d := daemontest.Embedded(t)
	r := newRig(t, d, "sleep 1000")
	if _, err := r.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := dialOnly(t, d)
	defer other.Close()
	if err := other.StartContainer(t.Context(), r.start); err != nil {
		t.Fatal(err)
	}
	made := find(t, other, r.key, "main", 0)
	if c := find(t, r.Runtime, r.key, "main", 0); c.ID != made.ID || c.State != pod.Running {
		t.Errorf("seen: %+v", c)
	}
	// What only its checkpoint has is not there.
	if err := other.SignalContainer(t.Context(), made.ID, "KILL"); err != nil {
		t.Fatal(err)
	}
	r.ended(t, 0)
	if err := errors.Join(other.ReapContainer(t.Context(), made.ID, ""), other.RemoveContainer(t.Context(), made.ID)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if o, err := r.Inspect(t.Context(), r.key); err != nil || len(o.Containers) != 0 || len(o.Remembered) != 1 {
			t.Errorf("%+v, %v", o, err)
		}
	}
}
