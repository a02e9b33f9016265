package reconcile_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/fake"
)

func TestResourcesChangeInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		h := start(t, rt)
		defer h.stop()
		sized := func(uid, cpu string) *v1.Pod {
			p := newPod("web", pod.UID(uid), v1.RestartPolicyAlways, "a", "b")
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
			return p
		}
		h.want(sized("u1", "1"))
		rt.Fail("ResizeContainer", errors.New("busy"))
		h.want(sized("u2", "2"))
		after(5 * time.Second)
		rt.Fail("ResizeContainer", nil)
		after(5 * time.Second)
		h.wantLiving("u1-a-0 u1-b-0")
		all, _ := rt.List(t.Context())
		if a, _ := all[0].Newest("u1", "a"); a.Resources != "requests.cpu=2" {
			t.Errorf("resources: %q", a.Resources)
		}
	})
}

// resources returns what the newest instance of the pod's container runs with.
func (h *house) resources(uid pod.UID, container string) string {
	all, _ := h.rt.List(h.t.Context())
	for _, o := range all {
		if c, found := o.Newest(uid, container); found {
			return c.Resources
		}
	}
	return ""
}

// TestGrowthWaitsForRoom: a pod that is to get more resources than are free keeps those that it
// has, also when its containers or podrun are restarted. It gets the new ones as soon as they are
// free, without a restart.
func TestGrowthWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		h := start(t, rt, machine("1Gi"))
		h.want(asking("p", "300Mi"), asking("q", "600Mi"))
		after(time.Second)
		check := func(id, runs, reason string) {
			t.Helper()
			p := h.board.get("p")
			c, pending := p.Status.ContainerStatuses[0], conditionOf(p, v1.PodResizePending)
			if !strings.Contains(h.living(), id) || h.resources("u-p", "a") != "requests.memory="+runs || pending.Reason != reason {
				t.Errorf("%s lives with %s, %+v", h.living(), h.resources("u-p", "a"), pending)
			}
			if says := p.Spec.Containers[0].Resources.Requests.Memory().String(); says == runs != (reason == "") {
				t.Errorf("the pod says %s", says)
			}
			if has := c.AllocatedResources.Memory().String(); has != runs || c.Resources.Requests.Memory().String() != runs {
				t.Errorf("status: %s, %v", has, c.Resources)
			}
		}
		check("u-p-a-0", "300Mi", "")
		h.events.take()
		h.want(asking("p", "500Mi"), asking("q", "600Mi"))
		after(time.Second)
		check("u-p-a-0", "300Mi", v1.PodReasonDeferred)
		want := "warning ResizeDeferred p/: Pod resize Deferred: Node didn't have enough resource: memory, requested: 524288000, used: 629145600, capacity: 1073741824; in use by default/q"
		if got := h.events.take(); got != want {
			t.Errorf("events: %s", got)
		}
		since := conditionOf(h.board.get("p"), v1.PodResizePending).LastTransitionTime
		rt.Exit("u-p-a-0", 1)
		after(time.Minute)
		check("u-p-a-1", "300Mi", v1.PodReasonDeferred)
		if again := conditionOf(h.board.get("p"), v1.PodResizePending).LastTransitionTime; again != since {
			t.Errorf("pending since %s, now since %s", since, again)
		}
		h.want(asking("p", "2Gi"), asking("q", "600Mi"))
		after(time.Second)
		check("u-p-a-1", "300Mi", v1.PodReasonInfeasible)
		h.want(asking("p", "500Mi"), asking("q", "600Mi"))
		after(time.Second)
		h.stop()
		h = start(t, rt, machine("1Gi"))
		defer h.stop()
		h.want(asking("p", "500Mi"), asking("q", "600Mi"))
		after(time.Second)
		check("u-p-a-1", "300Mi", v1.PodReasonDeferred)
		h.events.take()
		h.want(asking("p", "500Mi"))
		after(time.Second)
		check("u-p-a-1", "500Mi", "")
		want = "normal ResizeStarted p/: Pod resize started: a:requests.memory=500Mi;\nnormal ResizeCompleted p/: Pod resize completed: a:requests.memory=500Mi;"
		if got := h.events.take(); !strings.Contains(got, want) {
			t.Errorf("events: %s", got)
		}
		// What it has now is not given to another.
		h.want(asking("p", "500Mi"), asking("r", "600Mi"))
		after(time.Second)
		if r := h.board.get("r").Status; r.Reason != "OutOfmemory" {
			t.Errorf("%+v", r)
		}
		h.want(asking("p", "200Mi"), asking("r", "600Mi"))
		after(time.Second)
		check("u-p-a-1", "200Mi", "")
		h.wantPhase("r", v1.PodRunning)
	})
}

// TestResizeThatFailsIsShown: the status shows the resources that were allocated to the pod but
// could not be applied.
func TestResizeThatFailsIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		h := start(t, rt, machine("1Gi"))
		defer h.stop()
		h.want(asking("p", "300Mi"))
		rt.Fail("ResizeContainer", errors.New("busy"))
		h.want(asking("p", "200Mi"))
		after(5 * time.Second)
		p := h.board.get("p")
		if c := conditionOf(p, v1.PodResizeInProgress); c.Status != v1.ConditionTrue || c.Reason != v1.PodReasonError || !strings.Contains(c.Message, "busy") {
			t.Errorf("%+v", p.Status.Conditions)
		}
		if c := p.Status.ContainerStatuses[0]; c.AllocatedResources.Memory().String() != "200Mi" || c.Resources.Requests.Memory().String() != "300Mi" {
			t.Errorf("%+v", c)
		}
		if told := h.events.take(); strings.Count(told, "ResizeError") != 1 || strings.Contains(told, "ResizeCompleted") {
			t.Errorf("events: %s", told)
		}
		// Another resize in its place does not complete it.
		h.want(asking("p", "150Mi"))
		after(5 * time.Second)
		if told := h.events.take(); strings.Contains(told, "ResizeCompleted") || !strings.Contains(told, "ResizeStarted") {
			t.Errorf("events: %s", told)
		}
		rt.Fail("ResizeContainer", nil)
		after(time.Minute)
		if told := h.events.take(); strings.Count(told, "ResizeCompleted") != 1 || !strings.Contains(told, "completed: a:requests.memory=150Mi") {
			t.Errorf("events: %s", told)
		}
		if c := conditionOf(h.board.get("p"), v1.PodResizeInProgress); c.Type != "" {
			t.Errorf("%+v", c)
		}
	})
}

// TestResizeByANewInstance: a resizePolicy that requires a restart makes one restart, at once,
// whatever the container's restart policy and its exit code are. podrun may be killed after any
// step of it.
func TestResizeByANewInstance(t *testing.T) {
	for n, done := 1, false; !done; n++ {
		synctest.Test(t, func(t *testing.T) {
			rt := runtimeWith(map[string]fake.Script{"a:1": {}, "b:1": {}})
			h := start(t, rt)
			wanted := func(memory string) *v1.Pod {
				p := newPod("web", "u1", v1.RestartPolicyOnFailure, "a", "b")
				c := &p.Spec.Containers[0]
				c.RestartPolicy = new(v1.ContainerRestartPolicyNever)
				c.ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
				c.Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)}
				return p
			}
			h.want(wanted("1Gi"))
			after(time.Second)
			rt.CutAfter(n)
			h.want(wanted("2Gi"))
			after(5 * time.Second)
			done = rt.Left() > 0
			h.stop()
			rt.CutAfter(-1)
			h = start(t, rt)
			h.want(wanted("2Gi"))
			after(5 * time.Second)
			h.wantLiving("u1-a-1 u1-b-0")
			if got := h.resources("u1", "a"); got != "requests.memory=2Gi" {
				t.Errorf("cut after %d: runs with %s", n, got)
			}
			rt.Exit("u1-a-1", 1)
			rt.Exit("u1-b-0", 0)
			after(time.Minute)
			h.wantPhase("web", v1.PodFailed)
			h.stop()
		})
	}
}

// TestResizeOnAFullDisk: the new size is saved once there is space, so that a restart of podrun does not take it back.
func TestResizeOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, full := forever(), atomic.Bool{}
		h := start(t, rt, func(o *reconcile.Options) { o.Data = noSpaceFor2{o.Data, &full} })
		defer h.stop()
		sized := func(uid, cpu string) *v1.Pod {
			p := newPod("web", pod.UID(uid), v1.RestartPolicyAlways, "a")
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
			return p
		}
		h.want(sized("u1", "1"))
		full.Store(true)
		h.want(sized("u2", "2"))
		after(5 * time.Second)
		if got := h.resources("u1", "a"); got != "requests.cpu=2" {
			t.Errorf("resources: %q", got)
		}
		full.Store(false)
		after(5 * time.Second)
		p, err := rt.LoadPod("u1")
		if err != nil || p.Spec.Containers[0].Resources.Requests.Cpu().String() != "2" {
			t.Errorf("saved: %v, %v", p.Spec.Containers[0].Resources, err)
		}
	})
}

// noSpaceFor2 is Data that fails to save pods that request two CPUs while full.
type noSpaceFor2 struct {
	runtime.Data
	full *atomic.Bool
}

func (d noSpaceFor2) SavePod(p *v1.Pod, owner string) error {
	if d.full.Load() && p.Spec.Containers[0].Resources.Requests.Cpu().Value() == 2 {
		return errors.New("the disk is full")
	}
	return d.Data.SavePod(p, owner)
}
