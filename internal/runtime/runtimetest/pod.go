package runtimetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/trace"
)

// exec runs a line of sh in the instance and returns its exit code.
func (s subject) exec(t *testing.T, id, line string) int {
	t.Helper()
	code, err := s.Exec(t.Context(), id, []string{"sh", "-c", line}, runtime.ExecIO{})
	must(t, err)
	return code
}

// output returns what a line of sh in the instance writes to its standard output.
func (s subject) output(t *testing.T, id, line string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	code, err := s.Exec(t.Context(), id, []string{"sh", "-c", line}, runtime.ExecIO{Stdout: &out, Stderr: &errOut})
	must(t, err)
	if code != 0 {
		t.Fatalf("%s: %d, %s", line, code, errOut.String())
	}
	return strings.TrimSpace(out.String())
}

// settle waits until the instance's Script has set its trap.
func (s subject) settle(t *testing.T, id string) {
	t.Helper()
	if !s.Runs {
		return
	}
	// The script starts its first child after it has set the trap.
	eventually(t, "the script runs", func() bool { return s.exec(t, id, "ps | grep -q ' sleep 0.02$'") == 0 })
}

// listed returns the pod as List returns it.
func (s subject) listed(t *testing.T, key pod.Key) pod.Observed {
	t.Helper()
	all, err := s.List(t.Context())
	must(t, err)
	i := slices.IndexFunc(all, func(o pod.Observed) bool { return o.Key == key })
	if i < 0 {
		return pod.Observed{Key: key}
	}
	return all[i]
}

func testInspectIsList(t *testing.T, s subject) {
	a, b := s.newPod("a-node", "uid-a", "one", "two"), s.newPod("b-node", "uid-b", "main")
	same := func(when string) {
		t.Helper()
		for _, p := range []*v1.Pod{a, b} {
			key := pod.KeyOf(p)
			if diff := cmp.Diff(s.listed(t, key), s.inspect(t, p)); diff != "" {
				t.Errorf("%s: %s differs, list - inspect +:\n%s", when, key, diff)
			}
		}
	}
	one, main := s.ready(t, a), s.ready(t, b)
	two := one
	two.Container = &a.Spec.Containers[1]
	same("without a container")
	first := s.start(t, one)
	s.start(t, two)
	s.start(t, main)
	same("all running")
	s.Exit(t, first.ID, 5)
	s.ended(t, one)
	same("one exited")
	must(t, s.ReapContainer(t.Context(), first.ID, ""))
	same("one reaped")
	one.Attempt = 1
	s.start(t, one)
	same("one restarted")
	if o := s.inspect(t, a); len(o.Containers) != 3 || len(o.Sandboxes) != 1 ||
		!slices.Equal(o.Data, []pod.UID{a.UID}) || o.Owner != "serve" {
		t.Errorf("%+v", o)
	}
	s.remove(t, a)
	same("one removed")
	s.remove(t, b)
}

func testWakeups(t *testing.T, s subject) {
	p := s.newPod("web-node", "uid-ring", "main")
	start := s.ready(t, p)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rings, err := s.Wakeups(ctx)
	must(t, err)
	heard := func(when string) {
		t.Helper()
		timeout := time.After(patience)
		for {
			select {
			case ring, open := <-rings:
				if !open {
					t.Fatalf("%s: the wakeups ended", when)
				}
				if ring.All || ring.Key == pod.KeyOf(p) {
					return
				}
			case <-timeout:
				t.Fatalf("%s: no wakeup", when)
			}
		}
	}
	c := s.start(t, start)
	heard("after a start")
	// Receive all wakeups of the start before the exit.
	for quiet := false; !quiet; {
		select {
		case <-rings:
		case <-time.After(50 * time.Millisecond):
			quiet = true
		}
	}
	s.Exit(t, c.ID, 3)
	heard("after an exit")
	cancel()
	timeout := time.After(patience)
	for open := true; open; {
		select {
		case _, open = <-rings:
		case <-timeout:
			t.Fatal("the wakeups do not end with their context")
		}
	}
	s.remove(t, p)
}

func testSandboxes(t *testing.T, s subject) {
	p := s.newPod("web-node", "uid-sandbox", "main")
	must(t, s.SavePod(p, "serve"))
	var parts []string
	traced := trace.With(t.Context(), trace.Trace{
		Network:   func() { parts = append(parts, "network") },
		Connected: func(err error) { parts = append(parts, fmt.Sprint(err)) },
	})
	for range 2 {
		must(t, s.CreateSandbox(traced, p, 0))
		if want := []string{"network", "<nil>"}; !slices.Equal(parts, want) {
			t.Errorf("parts %q, want %q", parts, want)
		}
		o := s.inspect(t, p)
		if len(o.Sandboxes) != 1 || !o.Sandboxes[0].Ready ||
			o.Sandboxes[0].UID != p.UID || o.Sandboxes[0].CreatedAt.IsZero() {
			t.Fatalf("%+v", o.Sandboxes)
		}
	}
	must(t, s.CreateSandbox(t.Context(), p, 1))
	o := s.inspect(t, p)
	if len(o.Sandboxes) != 2 || o.Sandboxes[0].Attempt != 1 || o.Sandboxes[1].Attempt != 0 ||
		o.Sandboxes[0].ID == o.Sandboxes[1].ID {
		t.Fatalf("newest first: %+v", o.Sandboxes)
	}
	for range 2 {
		must(t, s.RemoveSandbox(t.Context(), o.Sandboxes[1].ID, nil))
	}
	if now := s.inspect(t, p); len(now.Sandboxes) != 1 || now.Sandboxes[0].ID != o.Sandboxes[0].ID {
		t.Errorf("%+v", now.Sandboxes)
	} else if len(now.Gone) > 0 {
		t.Errorf("has a sandbox, and shows one that is gone: %+v", now.Gone)
	}
	must(t, s.RemoveSandbox(t.Context(), o.Sandboxes[0].ID, nil))
	if now := s.inspect(t, p); len(now.Sandboxes) > 0 || len(now.Gone) != 1 || now.Gone[0].ID != o.Sandboxes[0].ID ||
		!slices.Equal(now.Gone[0].IPs, o.Sandboxes[0].IPs) {
		t.Errorf("without a sandbox: %+v, %+v", now.Sandboxes, now.Gone)
	}
	s.remove(t, p)
}

func testHostPorts(t *testing.T, s subject) {
	free, err := net.Listen("tcp", ":0") // a free port, because the suites of other runtimes run concurrently
	must(t, err)
	port := int32(free.Addr().(*net.TCPAddr).Port)
	must(t, free.Close())
	withPort := func(name, revision string) *v1.Pod {
		p := s.newPod(name, revision, "main")
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: port}}
		must(t, s.SavePod(p, "serve"))
		return p
	}
	a, edited, b := withPort("a-node", "uid-a"), withPort("a-node", "uid-a2"), withPort("b-node", "uid-b")
	for range 2 {
		must(t, s.CreateSandbox(t.Context(), a, 0))
	}
	said := ""
	taken := func() {
		t.Helper()
		var told *runtime.ReasonError
		if err := s.CreateSandbox(t.Context(), b, 0); !errors.As(err, &told) ||
			told.Reason != runtime.ReasonHostPortConflict || !strings.Contains(err.Error(), "default/a-node") {
			t.Errorf("a port of another pod: %v", err)
		} else if said == "" {
			said = err.Error()
		} else if err.Error() != said { // events of the attempts would not be counted as one
			t.Errorf("a later attempt says %q, the first %q", err, said)
		}
		if o := s.inspect(t, b); len(o.Sandboxes) > 0 {
			t.Errorf("left: %+v", o)
		}
	}
	taken()
	old := s.inspect(t, a).Sandboxes[0].ID
	must(t, s.CreateSandbox(t.Context(), edited, 0)) // before the old revision is removed
	must(t, s.RemoveSandbox(t.Context(), old, nil))
	taken()
	// While a workload is updated, the pod beyond its replicas may have the same port.
	surge := s.newPod("a-1-node", "uid-a3", "main")
	surge.Spec.Containers[0].Ports = a.Spec.Containers[0].Ports
	surge.Annotations = map[string]string{pod.AnnotationSurge: "Pod/a-node"}
	must(t, s.SavePod(surge, "serve"))
	must(t, s.CreateSandbox(t.Context(), surge, 0))
	for range 2 {
		must(t, s.YieldPorts(t.Context(), s.inspect(t, a).Sandboxes[0].ID))
	}
	must(t, s.YieldPorts(t.Context(), strings.Repeat("0", 32))) // which is none
	s.remove(t, a)
	if err := s.CreateSandbox(t.Context(), b, 0); err == nil || !strings.Contains(err.Error(), "default/a-1-node") {
		t.Errorf("a port that was yielded: %v", err)
	}
	s.remove(t, surge)
	must(t, s.CreateSandbox(t.Context(), b, 0))
	s.remove(t, b)
}

func testData(t *testing.T, s subject) {
	p := s.newPod("web-node", "uid-data", "main")
	p.Annotations = map[string]string{"a": "b"}
	p.CreationTimestamp = metav1.Unix(1_700_000_000, 0)
	must(t, s.SavePod(p, "once"))
	o := s.inspect(t, p)
	if !slices.Equal(o.Data, []pod.UID{p.UID}) || o.Owner != "once" || o.Empty() {
		t.Errorf("saved: %+v", o)
	}
	p.Annotations["a"] = "c"
	must(t, s.SavePod(p, "serve"))
	if o := s.inspect(t, p); o.Owner != "serve" {
		t.Errorf("saved by another: %+v", o)
	}
	must(t, s.Evict(p.UID, "it took too much"))
	if why, err := s.Evicted(p.UID); err != nil || why != "it took too much" {
		t.Errorf("evicted: %q, %v", why, err)
	}
	if why, err := s.Evicted("uid-none"); err != nil || why != "" {
		t.Errorf("nobody was evicted: %q, %v", why, err)
	}
	if is, err := s.Interrupted(p.UID); err != nil || is {
		t.Errorf("interrupted: %v, %v", is, err)
	}
	must(t, s.Interrupt(p.UID))
	if is, err := s.Interrupted("uid-none"); err != nil || is {
		t.Errorf("nobody was interrupted: %v, %v", is, err)
	}
	conditions := []v1.PodCondition{{
		Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.Unix(1_700_000_000, 0),
	}}
	must(t, s.SaveConditions(p.UID, conditions))
	must(t, s.SaveConditions("uid-none", conditions))
	if got, err := s.LoadConditions(p.UID); err != nil || !equality.Semantic.DeepEqual(got, conditions) {
		t.Errorf("conditions: %+v, %v", got, err)
	}
	must(t, s.SavePod(p, "serve"))
	if why, _ := s.Evicted(p.UID); why == "" {
		t.Error("saving forgot the eviction")
	}
	if is, err := s.Interrupted(p.UID); err != nil || !is {
		t.Errorf("saving forgot the interruption: %v, %v", is, err)
	}
	loaded, err := s.LoadPod(p.UID)
	must(t, err)
	if diff := cmp.Diff(p, loaded); diff != "" {
		t.Errorf("loaded:\n%s", diff)
	}
	other := s.newPod("web-node", "uid-more", "main")
	must(t, s.SavePod(other, "serve"))
	if o := s.inspect(t, p); !slices.Equal(o.Data, []pod.UID{other.UID, p.UID}) {
		t.Errorf("two revisions, the newest first: %+v", o.Data)
	}
	must(t, s.RemoveData(t.Context(), pod.KeyOf(p), p.UID))
	if _, err := s.LoadPod(p.UID); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("load: %v", err)
	}
	if o := s.inspect(t, p); !slices.Equal(o.Data, []pod.UID{other.UID}) {
		t.Errorf("one removed: %+v", o.Data)
	}
	s.remove(t, other)
}

func testOddNames(t *testing.T, s subject) {
	long := strings.Repeat("n123456789", 25) + "-no"
	for i, name := range []string{"a.b-c.d", long, "x"} {
		p := s.newPod(name, "Uid_"+strings.Repeat("u", i)+".1:2", strings.Repeat("c", 63))
		p.Namespace = "n-" + strings.Repeat("s", 60)
		start := s.ready(t, p)
		c := s.start(t, start)
		if c.Name != p.Spec.Containers[0].Name || c.UID != p.UID || c.State != pod.Running {
			t.Errorf("%+v", c)
		}
		if o := s.listed(t, pod.KeyOf(p)); len(o.Containers) != 1 {
			t.Errorf("%s: %+v", name, o)
		}
		s.remove(t, p)
	}
	// One name in two namespaces.
	a, b := s.newPod("web", "uid-1", "main"), s.newPod("web", "uid-2", "main")
	b.Namespace = "other"
	s.start(t, s.ready(t, a))
	s.start(t, s.ready(t, b))
	if len(s.inspect(t, a).Containers) != 1 || len(s.inspect(t, b).Containers) != 1 {
		t.Errorf("%+v %+v", s.inspect(t, a), s.inspect(t, b))
	}
	s.remove(t, a)
	s.remove(t, b)
}

func testShared(t *testing.T, s subject) {
	if !s.Runs {
		t.Skip("commands do not run in this runtime")
	}
	p := s.newPod("web-node", "uid-shared", "one", "two")
	start := s.ready(t, p)
	one := s.start(t, start)
	start.Container = &p.Spec.Containers[1]
	two := s.start(t, start)
	for _, ns := range []string{"net", "ipc", "uts"} {
		line := "readlink /proc/1/ns/" + ns
		if a, b := s.output(t, one.ID, line), s.output(t, two.ID, line); a != b || a == "" {
			t.Errorf("%s: %q and %q", ns, a, b)
		}
	}
	for _, ns := range []string{"pid", "mnt"} {
		line := "readlink /proc/1/ns/" + ns
		if a, b := s.output(t, one.ID, line), s.output(t, two.ID, line); a == b {
			t.Errorf("%s: both %q", ns, a)
		}
	}
	if got := s.output(t, one.ID, "hostname; echo $HOSTNAME"); got != "web-node\nweb-node" {
		t.Errorf("hostname %q", got)
	}
	s.remove(t, p)
}

// testSidecar checks that an instance itself reports whether it is a sidecar, because its manifest
// may have changed by the time at which it is stopped.
func testSidecar(t *testing.T, s subject) {
	p := s.newPod("sidecar-node", "uid-sidecar", "main")
	main := p.Spec.Containers[0]
	once, beside := main, main
	once.Name, beside.Name, beside.RestartPolicy = "init", "beside", new(v1.ContainerRestartPolicyAlways)
	p.Spec.InitContainers = []v1.Container{once, beside}
	start := s.ready(t, p)
	for place, c := range map[int]*v1.Container{0: &p.Spec.Containers[0], 2: &p.Spec.InitContainers[1]} {
		start.Container = c
		start.RestartGeneration = 3 * place
		if got := s.start(t, start); got.Sidecar != place || got.RestartGeneration != start.RestartGeneration {
			t.Errorf("%s: sidecar %d, want %d, of restart generation %d",
				c.Name, got.Sidecar, place, got.RestartGeneration)
		}
	}
	start.Container = &p.Spec.InitContainers[0]
	if got := s.start(t, start); got.Sidecar != 0 {
		t.Errorf("an init container: %+v", got)
	}
	s.remove(t, p)
}

// testRemembered checks that an instance that another program has removed is still known to have
// run, and how it exited if that was recorded.
func testRemembered(t *testing.T, s subject) {
	p := s.newPod("web-node", "uid-remembered", "main")
	start := s.ready(t, p)
	if o := s.inspect(t, p); len(o.Remembered) > 0 {
		t.Errorf("before a start: %+v", o.Remembered)
	}
	c := s.start(t, start)
	if o := s.inspect(t, p); len(o.Remembered) != 1 || o.Remembered[0].ID != c.ID ||
		o.Remembered[0].State != pod.Running {
		t.Errorf("running: %+v", o.Remembered)
	}
	s.Exit(t, c.ID, 5)
	s.ended(t, start)
	must(t, s.ReapContainer(t.Context(), c.ID, "its words"))
	must(t, s.RemoveContainer(t.Context(), c.ID))
	o := s.inspect(t, p)
	last, lost, found := o.Last(p.UID, "main")
	if !lost || !found || last.State != pod.Exited || last.ExitCode != 5 || last.Message != "its words" ||
		len(o.Containers) > 0 {
		t.Errorf("removed: %+v", o)
	}
	start.Attempt = 1
	s.start(t, start)
	if o := s.inspect(t, p); len(o.Remembered) != 1 || o.Remembered[0].Attempt != 1 {
		t.Errorf("the next: %+v", o.Remembered)
	}
	s.remove(t, p)
	if o := s.inspect(t, p); len(o.Remembered) > 0 {
		t.Errorf("removed, but remembered: %+v", o.Remembered)
	}
}
