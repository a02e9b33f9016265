package reconcile_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/runtime/fake"
)

// withInit adds init containers to a pod. A name in capitals makes a sidecar.
func withInit(p *v1.Pod, names ...string) *v1.Pod {
	for _, n := range names {
		name := strings.ToLower(n)
		c := v1.Container{Name: name, Image: name + ":1", ImagePullPolicy: v1.PullIfNotPresent}
		if n != name {
			c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	return p
}

func (h *house) wantPhase(name string, phase v1.PodPhase) {
	h.t.Helper()
	if got := h.board.get(name).Status.Phase; got != phase {
		h.t.Errorf("%s is %s, want %s", name, got, phase)
	}
}

func conditionOf(p *v1.Pod, kind v1.PodConditionType) v1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return v1.PodCondition{}
}

func TestInitContainersThenTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"i:1": {Run: time.Second}, "j:1": {Run: time.Second}, "a:1": {}})
		h := start(t, rt)
		defer h.stop()
		h.want(withInit(newPod("web", "u1", v1.RestartPolicyAlways, "a"), "i", "j"))
		h.wantLiving("u1-i-0")
		h.wantPhase("web", v1.PodPending)
		if c := conditionOf(h.board.get("web"), v1.PodInitialized); c.Status != v1.ConditionFalse || c.Reason != "ContainersNotInitialized" || c.Message != "containers with incomplete status: [i j]" {
			t.Errorf("condition: %+v", c)
		}
		after(1100 * time.Millisecond)
		h.wantLiving("u1-j-0")
		after(time.Second)
		h.wantLiving("u1-a-0")
		h.wantPhase("web", v1.PodRunning)
		rt.Exit("u1-a-0", 1)
		after(time.Second)
		h.wantLiving("u1-a-1")
		s := h.board.get("web").Status
		if c := conditionOf(h.board.get("web"), v1.PodInitialized); c.Status != v1.ConditionTrue {
			t.Errorf("condition: %+v", c)
		}
		for _, c := range s.InitContainerStatuses {
			if c.RestartCount != 0 || !c.Ready || c.State.Terminated == nil || c.State.Terminated.Reason != "Completed" {
				t.Errorf("an init container: %+v", c)
			}
		}
		rt.LoseSandbox("u1-sandbox-0")
		after(100 * time.Millisecond)
		h.wantLiving("u1-i-1")
		after(15 * time.Second) // its back-off goes on
		h.wantLiving("u1-a-2")
	})
}

func TestAnInitContainerThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"i:1": {Run: time.Second, Exit: 3}, "a:1": {}, "s:1": {}})
		h := start(t, rt)
		defer h.stop()
		h.want(withInit(newPod("web", "u1", v1.RestartPolicyAlways, "a"), "i"), withInit(newPod("job", "u2", v1.RestartPolicyNever, "a"), "S", "i"))
		after(5 * time.Second)
		s := h.board.get("web").Status
		if i := s.InitContainerStatuses[0]; i.RestartCount != 1 || i.State.Waiting == nil || i.State.Waiting.Reason != "CrashLoopBackOff" || s.Phase != v1.PodPending {
			t.Errorf("tried again: %+v", s)
		}
		s = h.board.get("job").Status
		if s.Phase != v1.PodFailed || s.InitContainerStatuses[1].State.Terminated == nil || s.ContainerStatuses[0].State.Waiting == nil || s.ContainerStatuses[0].State.Waiting.Reason != "PodInitializing" {
			t.Errorf("failed: %+v", s)
		}
		h.wantLiving("") // nor does the sidecar
	})
}

// TestItsOwnPolicyNever: containers with restartPolicy Never of their own in an Always pod run once in each sandbox, also
// one that had to end with its sandbox. In a pod that runs once ever they run once.
func TestItsOwnPolicyNever(t *testing.T) {
	for _, once := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			rt := runtimeWith(map[string]fake.Script{"i:1": {Run: 5 * time.Second}, "a:1": {}, "b:1": {Run: time.Second}})
			pod := func() *v1.Pod {
				p := withInit(newPod("web", "u1", v1.RestartPolicyAlways, "a", "b"), "i")
				p.Spec.InitContainers[0].RestartPolicy = new(v1.ContainerRestartPolicyNever)
				p.Spec.Containers[1].RestartPolicy = new(v1.ContainerRestartPolicyNever)
				if once {
					p.Annotations[plan.AnnotationRunPolicy] = plan.RunOnceEver
				}
				return p
			}
			h := start(t, rt)
			defer func() { h.stop() }()
			h.want(pod())
			after(time.Second)
			if !once {
				rt.LoseSandbox("u1-sandbox-0")
				after(time.Second)
				h.wantLiving("u1-i-1")
			}
			after(10 * time.Minute)
			h.stop()
			rt.Reboot("boot-2")
			h = start(t, rt, func(o *reconcile.Options) { o.Boot = "boot-2" })
			h.want(pod())
			after(time.Minute)
			h.wantPhase("web", v1.PodRunning)
			ran := strings.Join(slices.Sorted(slices.Values(rt.Ran())), " ")
			if want := map[bool]string{
				false: "u1-a-0 u1-a-1 u1-b-0 u1-b-1 u1-i-0 u1-i-1 u1-i-2", true: "u1-a-0 u1-a-1 u1-b-0 u1-i-0 u1-i-1",
			}[once]; ran != want {
				t.Errorf("ran: %s, want %s", ran, want)
			}
		})
	}
}

func TestSidecarsLastAsLongAsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"s:1": {}, "t:1": {}, "a:1": {Run: 20 * time.Second}})
		h := start(t, rt)
		defer h.stop()
		h.want(withInit(newPod("job", "u1", v1.RestartPolicyNever, "a"), "S", "T"))
		h.wantLiving("u1-a-0 u1-s-0 u1-t-0")
		rt.Exit("u1-s-0", 0)
		after(time.Second)
		h.wantLiving("u1-a-0 u1-s-1 u1-t-0")
		h.wantPhase("job", v1.PodRunning)
		after(20 * time.Second)
		h.wantLiving("")
		h.wantPhase("job", v1.PodSucceeded)
		var ended []string
		for _, call := range rt.Calls() {
			if id, ok := strings.CutPrefix(call, "SignalContainer "); ok {
				ended = append(ended, strings.TrimSpace(id))
			}
		}
		if got := strings.Join(ended, ", "); got != "u1-t-0 SIGTERM, u1-s-1 SIGTERM" {
			t.Errorf("ended: %s", got)
		}
	})
}

func TestSidecarsEndLastWithinTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"s:1": {}, "t:1": {}, "a:1": {}})
		rt.IgnoreTerm("a")
		rt.IgnoreTerm("t")
		h := start(t, rt)
		defer h.stop()
		h.want(withInit(newPod("web", "u1", v1.RestartPolicyAlways, "a"), "S", "T"))
		h.want()
		after(10 * time.Second)
		h.wantLiving("u1-a-0 u1-s-0 u1-t-0")
		rt.Exit("u1-a-0", 0)
		after(19 * time.Second)
		h.wantLiving("u1-s-0 u1-t-0")
		after(1100 * time.Millisecond)
		h.wantLiving("")
		h.wantEmpty()
	})
}

func TestSidecarsOfAnOldRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"s:1": {}, "a:1": {}})
		rt.IgnoreTerm("a")
		h := start(t, rt)
		defer h.stop()
		h.want(withInit(newPod("web", "u1", v1.RestartPolicyAlways, "a"), "S"))
		h.want(newPod("web", "u2", v1.RestartPolicyAlways, "a")) // it knows nothing of the sidecar
		after(29 * time.Second)
		h.wantLiving("u1-a-0 u1-s-0")
		after(2 * time.Second)
		h.wantLiving("u2-a-0")
	})
}

func TestTheLogIsTheMessageOfAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, runtimeWith(map[string]fake.Script{"a:1": {Run: time.Second, Exit: 1}, "b:1": {Run: time.Second, Exit: 1}, "c:1": {Run: time.Second}}))
		defer h.stop()
		p := newPod("job", "u1", v1.RestartPolicyNever, "a", "b", "c")
		p.Spec.Containers[0].TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
		p.Spec.Containers[2].TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
		h.want(p)
		after(2 * time.Second)
		for i, want := range []string{"the end of a", "", ""} {
			if got := h.board.get("job").Status.ContainerStatuses[i].State.Terminated; got == nil || got.Message != want {
				t.Errorf("container %d: %+v", i, got)
			}
		}
	})
}

func TestDeadlineIsNotStretchedByARestartOfPodrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		p := func() *v1.Pod {
			p := web()
			p.Spec.ActiveDeadlineSeconds = new(int64(30))
			return p
		}
		h := start(t, rt)
		h.want(p())
		after(20 * time.Second)
		h.stop()
		after(5 * time.Second)
		h = start(t, rt)
		h.want(p())
		after(4900 * time.Millisecond)
		h.wantLiving("u1-a-0")
		after(200 * time.Millisecond)
		h.wantLiving("")
		failed := func() {
			t.Helper()
			if s := h.board.get("web").Status; s.Phase != v1.PodFailed || s.Reason != "DeadlineExceeded" || s.Message == "" {
				t.Errorf("status: %+v", s)
			}
		}
		failed()
		h.stop()
		h = start(t, rt)
		defer h.stop()
		h.want(p())
		after(time.Hour)
		failed()
		h.wantLiving("")
	})
}

// TestResultsAreFinal: an in-place change of the deadline changes no result, also after a restart
// of podrun.
func TestResultsAreFinal(t *testing.T) {
	for name, c := range map[string]struct {
		policy        v1.RestartPolicy
		run           time.Duration
		before, after *int64
		phase         v1.PodPhase
		reason        string
	}{
		"more for one that was late":       {v1.RestartPolicyNever, 0, new(int64(3)), new(int64(600)), v1.PodFailed, "DeadlineExceeded"},
		"none for one that was late":       {v1.RestartPolicyNever, 0, new(int64(3)), nil, v1.PodFailed, "DeadlineExceeded"},
		"more for one that always runs":    {v1.RestartPolicyAlways, 0, new(int64(3)), new(int64(600)), v1.PodFailed, "DeadlineExceeded"},
		"more for one that retries":        {v1.RestartPolicyOnFailure, 0, new(int64(3)), new(int64(600)), v1.PodFailed, "DeadlineExceeded"},
		"one for what had succeeded":       {v1.RestartPolicyNever, 5 * time.Second, nil, new(int64(2)), v1.PodSucceeded, ""},
		"less for what had been in time":   {v1.RestartPolicyOnFailure, 5 * time.Second, new(int64(60)), new(int64(2)), v1.PodSucceeded, ""},
		"labels only of one that was late": {v1.RestartPolicyNever, 0, new(int64(3)), new(int64(3)), v1.PodFailed, "DeadlineExceeded"},
	} {
		for _, restarted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restarted %t", name, restarted), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					rt := runtimeWith(map[string]fake.Script{"a:1": {Run: c.run}})
					rt.ExitOnTerm("a", 0)
					job := func(deadline *int64) *v1.Pod {
						p := newPod("web", "u1", c.policy, "a")
						p.Spec.ActiveDeadlineSeconds = deadline
						return p
					}
					h := start(t, rt)
					defer func() { h.stop() }()
					h.want(job(c.before))
					after(time.Minute)
					edited := job(c.after)
					edited.UID, edited.Labels = "u2", map[string]string{"edit": "1"}
					edited.Annotations[manifest.AnnotationManifestHash], edited.Annotations[manifest.AnnotationHash] = "h2", "u2"
					if restarted {
						h.stop()
						h = start(t, rt)
					}
					h.want(edited)
					after(time.Hour)
					if s := h.board.get("web").Status; s.Phase != c.phase || s.Reason != c.reason {
						t.Errorf("%s %s, want %s %s", s.Phase, s.Reason, c.phase, c.reason)
					}
					if ran := rt.Ran(); len(ran) != 1 {
						t.Errorf("ran: %v", ran)
					}
					if p := h.board.get("web"); p.Labels["edit"] != "1" {
						t.Errorf("labels: %v", p.Labels)
					}
				})
			})
		}
	}
}

func TestADeadlineThatComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, forever())
		defer h.stop()
		h.want(web())
		after(20 * time.Second)
		p := web()
		p.UID = "u2" // what another manifest gives it
		p.Spec.ActiveDeadlineSeconds = new(int64(30))
		h.want(p)
		h.wantLiving("u1-a-0")
		after(10100 * time.Millisecond)
		h.wantLiving("")
		h.wantPhase("web", v1.PodFailed)
	})
}

func TestLabelsChangeInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		h := start(t, rt)
		h.want(web())
		edited := func() *v1.Pod {
			p := web()
			p.UID, p.Labels = "u2", map[string]string{"edit": "1"}
			p.Annotations["note"], p.Annotations[manifest.AnnotationManifestHash] = "1", "h2"
			p.Annotations[manifest.AnnotationHash] = "u2"
			return p
		}
		check := func() {
			t.Helper()
			h.wantLiving("u1-a-0")
			p := h.board.get("web")
			if p.UID != "u1" || p.Labels["edit"] != "1" || p.Annotations["note"] != "1" ||
				p.Annotations[manifest.AnnotationManifestHash] != "h2" || p.Annotations[manifest.AnnotationHash] != "u1" {
				t.Errorf("uid %s, labels %v, annotations %v", p.UID, p.Labels, p.Annotations)
			}
		}
		h.want(edited())
		check()
		h.stop()
		h = start(t, rt)
		defer h.stop()
		h.want(edited())
		check()
	})
}

// TestFormerHash: a pod of podrun's former version, which stored the manifest's hash as
// kubernetes.io/config.hash, is adopted by the same manifest although a default has changed since.
// It is then shown with its UID in this annotation.
func TestFormerHash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		h := start(t, rt)
		former := web()
		former.Annotations[manifest.AnnotationHash] = "h1"
		former.Spec.SchedulerName = "former"
		h.want(former)
		h.wantLiving("u1-a-0")
		h.stop()

		h = start(t, rt)
		defer h.stop()
		wanted := web()
		wanted.UID = "u2" // of a file that was renamed
		wanted.Annotations[manifest.AnnotationHash] = "u2"
		wanted.Annotations[manifest.AnnotationManifestHash] = "h1"
		h.want(wanted)
		h.wantLiving("u1-a-0")
		p := h.board.get("web")
		if p.UID != "u1" || p.Annotations[manifest.AnnotationHash] != "u1" || p.Annotations[manifest.AnnotationManifestHash] != "h1" {
			t.Errorf("uid %s, annotations %v", p.UID, p.Annotations)
		}
		kept, err := rt.LoadPod("u1")
		if err != nil || kept.Annotations[manifest.AnnotationHash] != "u1" || kept.Annotations[manifest.AnnotationManifestHash] != "h1" {
			t.Errorf("kept: %v, %v", kept, err)
		}
	})
}

// TestFormerHashUnreadable: the same is shown if its manifest cannot be read.
func TestFormerHashUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		h := start(t, rt)
		former := web()
		former.Annotations[manifest.AnnotationHash] = "h1"
		h.want(former)
		h.stop()

		h = start(t, rt)
		defer h.stop()
		blind := desired()
		blind.Problems = []manifest.Problem{{Origin: manifest.OriginOf(former), Blind: true, Err: errors.New("half a file")}}
		h.desired <- blind
		after(time.Second)
		h.wantLiving("u1-a-0")
		if p := h.board.get("web"); p.Annotations[manifest.AnnotationHash] != "u1" || p.Annotations[manifest.AnnotationManifestHash] != "h1" {
			t.Errorf("annotations %v", p.Annotations)
		}
	})
}

func TestAShorterGraceArrivesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		rt.IgnoreTerm("a")
		h := start(t, rt)
		defer h.stop()
		h.want(web())
		h.want()
		after(10 * time.Second)
		h.wantLiving("u1-a-0")
		d := desired()
		d.Grace = new(12 * time.Second)
		h.desired <- d
		after(time.Second)
		h.wantLiving("u1-a-0")
		after(1100 * time.Millisecond)
		h.wantLiving("")
		h.wantEmpty()
	})
}

// TestAddressesOutliveTheSandbox: a completed pod shows the address that it had; a pod that runs
// again shows its new one.
func TestAddressesOutliveTheSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, runtimeWith(map[string]fake.Script{"a:1": {Run: time.Minute}}))
		defer h.stop()
		h.want(newPod("job", "u1", v1.RestartPolicyNever, "a"))
		had := h.board.get("job").Status.PodIP
		after(2 * time.Minute)
		if s := h.board.get("job").Status; s.Phase != v1.PodSucceeded || had == "" || s.PodIP != had || len(s.PodIPs) != 1 {
			t.Errorf("%s with the address %q, %v; had %q", s.Phase, s.PodIP, s.PodIPs, had)
		}
		if all, err := h.rt.List(t.Context()); err != nil || len(all) != 1 || len(all[0].Sandboxes) != 0 {
			t.Errorf("it has a sandbox: %+v, %v", all, err)
		}
		next := newPod("job", "u2", v1.RestartPolicyNever, "a")
		next.Spec.Containers[0].Args = []string{"next"}
		h.want(next)
		after(time.Second)
		if s := h.board.get("job").Status; s.PodIP == had || s.PodIP == "" {
			t.Errorf("the next revision has the address %q", s.PodIP)
		}
	})
}
