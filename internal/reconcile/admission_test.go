package reconcile_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/runtime"
)

// asking returns a pod that requests memory.
func asking(name, memory string) *v1.Pod {
	p := newPod(name, types.UID("u-"+name), v1.RestartPolicyAlways, "a")
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)}
	return p
}

func machine(memory string) func(*reconcile.Options) {
	return func(o *reconcile.Options) { o.Node = v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)} }
}

// TestPodsFitTheMachine: however many pods are added at once, only those that fit run, and the next
// one starts as soon as one is removed. Running pods keep their reservation over a restart of
// podrun.
func TestPodsFitTheMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		h := start(t, rt, machine("1Gi"))
		names := strings.Fields("p q r s t u")
		var all []*v1.Pod
		for _, name := range names {
			all = append(all, asking(name, "300Mi"))
		}
		best := newPod("best", "u-best", v1.RestartPolicyAlways, "a")
		h.want(append(all, best)...)
		after(time.Second)
		count := func() (running []string, waiting int) {
			for _, id := range strings.Fields(h.living()) {
				if name := strings.TrimSuffix(strings.TrimPrefix(id, "u-"), "-a-0"); name != "best" {
					running = append(running, name)
				}
			}
			for _, name := range names {
				if h.board.get(name) != nil && h.board.get(name).Status.Reason == "OutOfmemory" {
					waiting++
				}
			}
			return running, waiting
		}
		first, waiting := count()
		if len(first) != 3 || waiting != 3 || h.board.get("best").Status.Phase != v1.PodRunning {
			t.Fatalf("%s run, %d wait", first, waiting)
		}
		h.stop()
		h = start(t, rt, machine("1Gi"))
		defer h.stop()
		h.want(append(all, best)...)
		after(time.Second)
		if again, waiting := count(); strings.Join(again, " ") != strings.Join(first, " ") || waiting != 3 {
			t.Errorf("%s ran, now %s, and %d wait", first, again, waiting)
		}
		// One goes, and one gets smaller: there is room for two more.
		var left []*v1.Pod
		for _, p := range all {
			if p.Name == first[1] {
				p = asking(p.Name, "100Mi")
			}
			if p.Name != first[0] {
				left = append(left, p)
			}
		}
		h.want(left...)
		after(time.Second)
		if now, waiting := count(); len(now) != 4 || waiting != 1 {
			t.Errorf("after one has gone: %s, %d wait", now, waiting)
		}
	})
}

// TestRevisionNeedsMore: a new revision that no longer fits into the machine waits until it does, also when podrun is
// started again meanwhile.
func TestRevisionNeedsMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		h := start(t, rt, machine("500Mi"))
		other, more := asking("p", "300Mi"), asking("q", "300Mi")
		more.UID, more.Spec.Containers[0].Command = "u-more", []string{"other"}
		h.want(other, asking("q", "100Mi"))
		after(time.Second)
		for range 2 {
			h.want(other, more)
			after(time.Minute)
			if living, reason := h.living(), h.board.get("q").Status.Reason; living != "u-p-a-0" || reason != "OutOfmemory" {
				t.Errorf("%s runs, the other one is %q", living, reason)
			}
			h.stop()
			h = start(t, rt, machine("500Mi"))
		}
		defer h.stop()
		h.want(more)
		after(time.Minute)
		if living := h.living(); living != "u-more-a-0" {
			t.Errorf("%s runs", living)
		}
	})
}

// unlisted is an inspector that never lists all pods, as while one of them hangs.
type unlisted struct{ reconcile.Inspector }

func (unlisted) Listed() <-chan struct{} { return nil }

// TestAPodThatCannotFitTakesNothing: a pod that requests more than the machine has does not keep others from starting, not
// even for a moment, whether or not podrun has listed what is there.
func TestAPodThatCannotFitTakesNothing(t *testing.T) {
	for name, inspector := range map[string]func(reconcile.Inspector) reconcile.Inspector{
		"not listed": func(i reconcile.Inspector) reconcile.Inspector { return unlisted{i} },
		"listed":     func(i reconcile.Inspector) reconcile.Inspector { return i },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := start(t, forever(), machine("1Gi"), func(o *reconcile.Options) { o.Inspector = inspector(o.Inspector) })
				defer h.stop()
				after(time.Second)
				h.want(asking("huge", "900Gi"), asking("p", "16Mi"), asking("q", "16Mi"))
				after(time.Second)
				events := h.events.take()
				others := strings.Count(events, "OutOfmemory") - strings.Count(events, "OutOfmemory huge/: ")
				if others != 0 || !strings.Contains(events, "OutOfmemory huge/: ") {
					t.Errorf("events:\n%s", events)
				}
				if living := h.living(); living != "u-p-a-0 u-q-a-0" {
					t.Errorf("%s runs", living)
				}
			})
		})
	}
}

// TestNewPodsTakeNothingBeforeTheyAreAdmitted: once podrun has listed what is there, pods that do not fit together are
// admitted in some order, and none is refused because of one that is refused too.
func TestNewPodsTakeNothingBeforeTheyAreAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, forever(), machine("1Gi"))
		defer h.stop()
		after(time.Second)
		h.want(asking("p", "600Mi"), asking("q", "600Mi"), asking("small", "100Mi"))
		after(time.Second)
		if events := h.events.take(); strings.Contains(events, "OutOfmemory small/: ") ||
			strings.Contains(events, "OutOfmemory p/: ") == strings.Contains(events, "OutOfmemory q/: ") {
			t.Errorf("events:\n%s", events)
		}
	})
}

// slowly reads slowly whether a pod was interrupted, so that other pods are planned for in between.
type slowly struct{ runtime.Data }

func (s slowly) Interrupted(uid pod.UID) (bool, error) {
	if uid[0] == 'p' {
		time.Sleep(10 * time.Millisecond)
	}
	return s.Data.Interrupted(uid)
}

// plugins are the device plugins of a machine, whose devices come and go.
type plugins struct {
	mu      sync.Mutex
	usable  int
	changed []func()
}

func (p *plugins) Offered() map[v1.ResourceName]pod.DeviceOffer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return map[v1.ResourceName]pod.DeviceOffer{"example.com/gpu": {Usable: p.usable}}
}

func (p *plugins) OnChange(f func()) { p.changed = append(p.changed, f) }

func (p *plugins) offer(n int) {
	p.mu.Lock()
	p.usable = n
	p.mu.Unlock()
	for _, f := range p.changed {
		f()
	}
}

func (p *plugins) CPUs(string, *v1.Pod) pod.CPUs                         { return pod.CPUs{} }
func (p *plugins) Acquire(context.Context, string, *v1.Pod) error        { return nil }
func (p *plugins) Health(string, *v1.Pod) map[string][]v1.ResourceStatus { return nil }

// TestAnEditWithoutThePlugin: the plugin is away, or a device unhealthy, while the pod is edited, and comes back.
func TestAnEditWithoutThePlugin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		devices := &plugins{usable: 2}
		h := start(t, forever(), func(o *reconcile.Options) { o.Devices, o.Data = devices, slowly{o.Data} })
		defer h.stop()
		after(time.Second)
		pods := func(rev int) []*v1.Pod {
			q := v1.ResourceList{"example.com/gpu": resource.MustParse("2")}
			p := newPod("p", types.UID(fmt.Sprint("p", rev)), v1.RestartPolicyAlways, "a")
			p.Spec.Containers[0].Resources = v1.ResourceRequirements{Limits: q, Requests: q}
			p.Spec.Containers[0].Command = []string{string(p.UID)}
			other := newPod("q", "q0", v1.RestartPolicyAlways, "a")
			one := v1.ResourceList{"example.com/gpu": resource.MustParse("1")}
			other.Spec.Containers[0].Resources = v1.ResourceRequirements{Limits: one, Requests: one}
			return []*v1.Pod{p, other}
		}
		h.want(pods(0)[0])
		after(time.Second)
		h.want(pods(0)...)
		after(time.Second)
		for rev, n := range []int{0, 1, 0, 1} {
			devices.offer(n)
			after(time.Second)
			h.want(pods(rev + 1)...)
			after(time.Minute)
			h.wantLiving("")
			devices.offer(2)
			after(time.Minute)
			h.wantLiving(fmt.Sprintf("p%d-a-0", rev+1))
		}
		devices.offer(0)
		h.want(pods(9)...)
		after(time.Minute)
		h.want(pods(9)[1]) // it is removed before it could start
		devices.offer(2)
		after(time.Minute)
		h.wantLiving("q0-a-0")
	})
}

// TestAnEditKeepsWhatThePodHas: a pod that waits for a device, or for memory, does not get it while the pod that has it is
// edited, although nothing of that is left in between. It gets what the edit leaves, and all when the pod is gone.
func TestAnEditKeepsWhatThePodHas(t *testing.T) {
	const gpu = "example.com/gpu"
	with := func(p *v1.Pod, uid types.UID, n string) *v1.Pod {
		p = p.DeepCopy()
		p.UID = uid
		q := v1.ResourceList{gpu: resource.MustParse(n)}
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{Limits: q, Requests: q}
		p.Spec.Containers[0].Command = []string{string(uid)}
		return p
	}
	synctest.Test(t, func(t *testing.T) {
		h := start(t, forever(), func(o *reconcile.Options) {
			o.Node = v1.ResourceList{gpu: resource.MustParse("2")}
			o.Data = slowly{o.Data}
		})
		defer h.stop()
		after(time.Second)
		first, other := newPod("p", "p0", v1.RestartPolicyAlways, "a"), newPod("q", "q0", v1.RestartPolicyAlways, "a")
		want := func(n string, rev int, living string) {
			t.Helper()
			all := []*v1.Pod{with(first, types.UID(fmt.Sprint("p", rev)), n), with(other, "q0", "1")}
			h.want(all...)
			after(time.Minute)
			if got := h.living(); got != living {
				t.Errorf("revision %d: %s runs, want %s", rev, got, living)
			}
		}
		h.want(with(first, "p0", "2"))
		after(time.Second)
		want("2", 0, "p0-a-0")
		want("2", 1, "p1-a-0")
		want("2", 2, "p2-a-0")
		want("1", 3, "p3-a-0 q0-a-0")
		want("2", 4, "q0-a-0") // which needs more, and waits
		want("1", 5, "p5-a-0 q0-a-0")
		h.want(with(other, "q0", "2"))
		after(time.Minute)
		if got := h.living(); got != "q0-a-0" {
			t.Errorf("when the other is gone: %s", got)
		}
	})
}
