package status

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// TestTransitionTimes follows pods through their lives: the transition time of a condition changes
// with its status, and only then.
func TestTransitionTimes(t *testing.T) {
	t.Parallel()
	began := time.Unix(1_700_000_000, 0)
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	c := func(attempt int, state pod.State, started, finished int) pod.Container {
		c := pod.Container{ID: string(rune('0' + attempt)), Name: "c", UID: "u1", Attempt: attempt, State: state, StartedAt: at(started)}
		if state == pod.Exited {
			c.FinishedAt = at(finished)
		}
		return c
	}
	box := []pod.Sandbox{{ID: "s", UID: "u1", Ready: true, CreatedAt: at(1)}}
	type times struct{ sandbox, initialized, ready int } // seconds; negative when the condition is False
	type step struct {
		at     int
		boxes  []pod.Sandbox
		seen   []pod.Container
		probed map[string]pod.Probed
		plan   plan.Plan
		want   times
	}
	crashing := func(waits bool) plan.Plan {
		p := plan.Plan{Waiting: map[string]plan.Waiting{}}
		if waits {
			p.Waiting["c"] = plan.Waiting{Reason: "CrashLoopBackOff"}
		}
		return p
	}
	found := func(ready bool, since int) map[string]pod.Probed {
		return map[string]pod.Probed{"0": {Ready: &ready, Since: at(since)}, "1": {Ready: &ready, Since: at(since)}}
	}
	start := step{0, nil, nil, nil, crashing(true), times{0, 0, 0}}
	for name, steps := range map[string][]step{
		"a job": {start,
			{2, box, nil, nil, crashing(true), times{2, 0, 0}},
			{4, box, []pod.Container{c(0, pod.Running, 3, 0)}, nil, crashing(false), times{2, 0, 4}},
			{50, box, []pod.Container{c(0, pod.Running, 3, 0)}, nil, crashing(false), times{2, 0, 4}},
			{61, box, []pod.Container{c(0, pod.Exited, 3, 60)}, nil, plan.Plan{Completed: true}, times{2, 0, -61}},
			{62, nil, []pod.Container{c(0, pod.Exited, 3, 60)}, nil, plan.Plan{Completed: true}, times{-62, 0, -61}},
			{99, nil, []pod.Container{c(0, pod.Exited, 3, 60)}, nil, plan.Plan{Completed: true}, times{-62, 0, -61}}},
		"one that never is ready": {start,
			{4, box, []pod.Container{c(0, pod.Running, 3, 0)}, found(false, 4), crashing(false), times{4, 0, 0}},
			{8, box, []pod.Container{c(0, pod.Exited, 3, 7)}, found(false, 4), crashing(true), times{4, 0, 0}},
			{20, box, []pod.Container{c(1, pod.Running, 18, 0), c(0, pod.Exited, 3, 7)}, found(false, 19), crashing(false), times{4, 0, 0}},
			{30, box, []pod.Container{c(1, pod.Running, 18, 0), c(0, pod.Exited, 3, 7)}, found(true, 29), crashing(false), times{4, 0, 30}},
			{40, box, []pod.Container{c(1, pod.Running, 18, 0)}, found(true, 39), crashing(false), times{4, 0, 30}}},
		"a job that an earlier podrun ran": {
			{99, nil, []pod.Container{c(0, pod.Exited, 3, 60)}, nil, plan.Plan{Completed: true}, times{-60, 0, -60}}},
		"what an earlier podrun ran": {
			{99, box, []pod.Container{c(0, pod.Running, 3, 0)}, nil, crashing(false), times{1, 0, 3}}},
		"what lost its sandbox": {
			{99, []pod.Sandbox{{ID: "s", UID: "u1", CreatedAt: at(1)}}, []pod.Container{c(0, pod.Exited, 3, 60)}, nil, crashing(true), times{-60, 0, -60}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &v1.Pod{}
			p.UID, p.Spec.RestartPolicy = "u1", v1.RestartPolicyOnFailure
			p.Spec.Containers = []v1.Container{{Name: "c"}}
			if len(steps) == 1 { // else it is not known at first
				p.Annotations = map[string]string{manifest.AnnotationSeen: began.UTC().Format(time.RFC3339Nano)}
			}
			if name == "one that never is ready" {
				p.Spec.Containers[0].ReadinessProbe = &v1.Probe{}
			}
			var before []v1.PodCondition
			for _, s := range steps {
				got := Of(Input{Pod: p, Observed: pod.Observed{Sandboxes: s.boxes, Containers: s.seen}, Plan: s.plan, Probed: s.probed,
					Before: before, Now: at(s.at)})
				before = got.Conditions
				wantSince(t, s.at, before, v1.PodReadyToStartContainers, at(max(s.want.sandbox, -s.want.sandbox)))
				wantSince(t, s.at, before, v1.PodInitialized, at(s.want.initialized))
				for _, kind := range []v1.PodConditionType{v1.PodReady, v1.ContainersReady} {
					wantSince(t, s.at, before, kind, at(max(s.want.ready, -s.want.ready)))
				}
				wantSince(t, s.at, before, v1.PodScheduled, began)
				if before[0].Status != truth(s.want.sandbox > 0) || before[2].Status != truth(s.want.ready > 0) {
					t.Errorf("at %d s: %s %s, %s %s", s.at, before[0].Type, before[0].Status, before[2].Type, before[2].Status)
				}
				p.Annotations = map[string]string{manifest.AnnotationSeen: began.Add(time.Second).UTC().Format(time.RFC3339Nano)}
			}
		})
	}
}

func wantSince(t *testing.T, now int, all []v1.PodCondition, kind v1.PodConditionType, want time.Time) {
	t.Helper()
	for _, c := range all {
		if c.Type == kind && !c.LastTransitionTime.Time.Equal(want) {
			t.Errorf("at %d s: %s %s since %s, want %s", now, kind, c.Status, c.LastTransitionTime.UTC(), want.UTC())
		}
	}
}

func truth(is bool) v1.ConditionStatus {
	if is {
		return v1.ConditionTrue
	}
	return v1.ConditionFalse
}

// TestPassingConditionsKeepTheirTime: the transition time stays while only reason and message
// change.
func TestPassingConditionsKeepTheirTime(t *testing.T) {
	t.Parallel()
	began := time.Unix(1_700_000_000, 0)
	p := &v1.Pod{}
	p.UID, p.Spec.Containers = "u1", []v1.Container{{Name: "c"}}
	var before []v1.PodCondition
	for i, reason := range []string{"Infeasible", "Deferred", "Deferred"} {
		in := Input{Pod: p, Plan: plan.Plan{ResizePending: &plan.Waiting{Reason: reason}}, Before: before, Now: began.Add(time.Duration(i) * time.Minute)}
		before = Of(in).Conditions
		wantSince(t, i, before, v1.PodResizePending, began)
	}
}

// TestReadyToStartContainers: a pod whose volumes cannot be mounted is not ready to start containers, although
// podrun has a sandbox for it already; one that has started a container in that sandbox was.
func TestReadyToStartContainers(t *testing.T) {
	t.Parallel()
	box := func(ready bool) []pod.Sandbox {
		return []pod.Sandbox{{ID: "s1", UID: "u1", Ready: ready, CreatedAt: time.Unix(1_700_000_000, 0)}}
	}
	in := func(sandbox string, state pod.State) []pod.Container {
		return []pod.Container{{ID: "c0", Name: "c", UID: "u1", SandboxID: sandbox, State: state}}
	}
	missing := plan.Plan{Unmounted: &plan.Waiting{Reason: "FailedMount", Message: "hostPath /x: does not exist"}}
	for name, c := range map[string]struct {
		boxes  []pod.Sandbox
		seen   []pod.Container
		plan   plan.Plan
		want   v1.ConditionStatus
		reason string
	}{
		"no sandbox":                         {nil, nil, plan.Plan{}, v1.ConditionFalse, ""},
		"a lost sandbox":                     {box(false), nil, missing, v1.ConditionFalse, ""},
		"a sandbox":                          {box(true), nil, plan.Plan{}, v1.ConditionTrue, ""},
		"no volume":                          {box(true), nil, missing, v1.ConditionFalse, "FailedMount"},
		"a start that was cut off":           {box(true), in("s1", pod.Created), missing, v1.ConditionFalse, "FailedMount"},
		"no volume, after a reboot":          {box(true), in("s0", pod.Exited), missing, v1.ConditionFalse, "FailedMount"},
		"a volume that is gone at a restart": {box(true), in("s1", pod.Exited), missing, v1.ConditionTrue, ""},
		"another container runs":             {box(true), in("s1", pod.Running), missing, v1.ConditionTrue, ""},
	} {
		p := &v1.Pod{}
		p.UID, p.Spec.Containers = "u1", []v1.Container{{Name: "c"}}
		got := Of(Input{Pod: p, Observed: pod.Observed{Sandboxes: c.boxes, Containers: c.seen}, Plan: c.plan}).Conditions[0]
		if got.Type != v1.PodReadyToStartContainers || got.Status != c.want || got.Reason != c.reason ||
			(got.Message != "") != (c.reason != "") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestDisruptionTarget: a pod that a shutdown of the machine has interrupted has failed whatever its container returned,
// with the kubelet's reason, and has the condition DisruptionTarget from when it has ended. One that exceeds its own
// storage limit, or its deadline, has no such condition, as with the kubelet.
func TestDisruptionTarget(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{}
	p.UID, p.Spec.RestartPolicy, p.Spec.Containers = "u1", v1.RestartPolicyNever, []v1.Container{{Name: "c"}}
	interrupted := &plan.Waiting{Reason: plan.ReasonTerminated, Message: "shut down"}
	began := time.Unix(1_700_000_000, 0)
	for name, tt := range map[string]struct {
		state pod.State
		plan  plan.Plan
		phase v1.PodPhase
		has   bool
	}{
		"interrupted":         {pod.Exited, plan.Plan{Completed: true, Failure: interrupted}, v1.PodFailed, true},
		"not over":            {pod.Running, plan.Plan{Failure: interrupted}, v1.PodRunning, false},
		"evicted":             {pod.Exited, plan.Plan{Completed: true, Failure: &plan.Waiting{Reason: "Evicted"}}, v1.PodFailed, false},
		"deadline":            {pod.Exited, plan.Plan{Completed: true, Failure: &plan.Waiting{Reason: "DeadlineExceeded"}}, v1.PodFailed, false},
		"ended before":        {pod.Exited, plan.Plan{Completed: true}, v1.PodSucceeded, false},
		"an earlier podrun's": {pod.Exited, plan.Plan{Completed: true, Failure: interrupted}, v1.PodFailed, true},
	} {
		in := Input{
			Pod: p, Plan: tt.plan, Now: began.Add(time.Minute),
			Observed: pod.Observed{Containers: []pod.Container{{ID: "1", Name: "c", UID: "u1", State: tt.state}}},
		}
		since := in.Now
		if name == "an earlier podrun's" {
			since = began
			in.Before = []v1.PodCondition{condition(v1.DisruptionTarget, true, began, "", "")}
		}
		s := Of(in)
		at := slices.IndexFunc(s.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget })
		if s.Phase != tt.phase || (at >= 0) != tt.has {
			t.Errorf("%s: %s, %+v", name, s.Phase, s.Conditions)
		}
		want := condition(v1.DisruptionTarget, true, since, "TerminationByKubelet", "shut down")
		if at >= 0 && (s.Conditions[at] != want || s.Reason != "Terminated" || s.Message != "shut down") {
			t.Errorf("%s: %+v, want %+v; %s: %s", name, s.Conditions[at], want, s.Reason, s.Message)
		}
	}
}
