package revisions

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestHealthOf: a pod is healthy when it is ready, for ten seconds if nothing probes it.
func TestHealthOf(t *testing.T) {
	t.Parallel()
	probed := v1.Container{Name: "c", ReadinessProbe: &v1.Probe{}}
	ready := []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	waiting := func(reason, message string) v1.PodStatus {
		return v1.PodStatus{Phase: v1.PodPending, ContainerStatuses: []v1.ContainerStatus{{
			Name: "c", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}},
			LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 3}},
		}}}
	}
	for name, c := range map[string]struct {
		container v1.Container
		status    v1.PodStatus
		ready     time.Duration
		shown     time.Duration
		leaving   bool
		want      Health
	}{
		"probed":       {probed, v1.PodStatus{Conditions: ready}, 0, 0, false, Health{State: Well}},
		"just started": {v1.Container{}, v1.PodStatus{Conditions: ready}, 4 * time.Second, 4 * time.Second, false, Health{Reason: "it was not ready for 10s without a restart", Wait: 6 * time.Second}},
		"settled":      {v1.Container{}, v1.PodStatus{Conditions: ready}, Settled, Settled, false, Health{State: Well}},
		"not shown":    {v1.Container{}, v1.PodStatus{Conditions: ready}, time.Minute, 9 * time.Second, false, Health{Reason: "it was not ready for 10s without a restart", Wait: time.Second, Unsure: true}},
		"leaving":      {probed, v1.PodStatus{Conditions: ready}, time.Hour, time.Hour, true, Health{Reason: "it has not started"}},
		"succeeded":    {v1.Container{}, v1.PodStatus{Phase: v1.PodSucceeded}, 0, 0, false, Health{State: Well}},
		"failed":       {v1.Container{}, v1.PodStatus{Phase: v1.PodFailed, Reason: "DeadlineExceeded"}, 0, 0, false, Health{State: Broken, Reason: "it has failed: DeadlineExceeded"}},
		"crashing":     {v1.Container{}, waiting("CrashLoopBackOff", "back-off 10s"), 0, 0, false, Health{Reason: "it is not ready: c: exit code 3"}},
		"no image":     {v1.Container{}, waiting("ErrImagePull", "no such image"), 0, 0, false, Health{Reason: "it is not ready: c: ErrImagePull: no such image"}},
		"not probed":   {probed, v1.PodStatus{}, 0, 0, false, Health{Reason: "it is not ready"}},
	} {
		p := &v1.Pod{Status: c.status}
		p.Spec.Containers = []v1.Container{c.container}
		if c.leaving {
			p.DeletionTimestamp = &metav1.Time{}
		}
		if got := HealthOf(Observed{Pod: p, Ready: c.ready, Shown: c.shown}, 0); got != c.want {
			t.Errorf("%s: %+v\nwant %+v", name, got, c.want)
		}
	}
	p := &v1.Pod{Status: v1.PodStatus{Conditions: ready}}
	p.Spec.Containers = []v1.Container{probed}
	if got := HealthOf(Observed{Pod: p, Ready: time.Second}, time.Minute); got.State != Starting || got.Wait != 59*time.Second {
		t.Errorf("minReadySeconds: %+v", got)
	}
	if got := HealthOf(Observed{}, 0); got.State != Starting {
		t.Errorf("no pod: %+v", got)
	}
}

// TestJoin: a revision is healthy when all its pods are, and broken when one is.
func TestJoin(t *testing.T) {
	t.Parallel()
	well, wait := Health{State: Well}, Health{Reason: "not yet", Wait: 5 * time.Second}
	for want, pods := range map[Health]map[string]Health{
		well: {"a": well, "b": well},
		{Reason: "pod b: not yet", Wait: 5 * time.Second}:               {"a": well, "b": wait},
		{Reason: "pod a: never", Wait: 5 * time.Second}:                 {"a": {Reason: "never"}, "b": wait},
		{State: Broken, Reason: "pod b: failed", Wait: 5 * time.Second}: {"a": wait, "b": {State: Broken, Reason: "failed"}},
	} {
		if got := Join(pods); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}
