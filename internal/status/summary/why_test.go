package summary

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/manifest"
)

// TestNextAttempt: a time that has come is not counted down to "in 0s".
func TestNextAttempt(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for left, want := range map[time.Duration]string{
		-time.Second: "", 0: "", time.Millisecond: "; next attempt now", 999 * time.Millisecond: "; next attempt now",
		time.Second: "; next attempt in 1s", time.Minute: "; next attempt in 60s",
	} {
		p := &v1.Pod{}
		p.Annotations = map[string]string{manifest.AnnotationNext: now.Add(left).Format(time.RFC3339Nano)}
		if got := nextAttempt(p, now); got != want {
			t.Errorf("%s: got %q, want %q", left, got, want)
		}
	}
}

// TestWhyWaiting: a container that waits has its reason and what is known of it, once and in one line.
func TestWhyWaiting(t *testing.T) {
	t.Parallel()
	wait := func(reason, message string) v1.ContainerStatus {
		return v1.ContainerStatus{State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}}}
	}
	crashed := wait("CrashLoopBackOff", "back-off 10s restarting failed container")
	crashed.LastTerminationState.Terminated = &v1.ContainerStateTerminated{ExitCode: 7, Reason: "Error", Message: "boom\nbang"}
	p := &v1.Pod{}
	for want, status := range map[string]v1.ContainerStatus{
		"ImagePullBackOff: no such image …":     wait("ImagePullBackOff", "no such image\nat all"),
		"ContainerCreating":                     wait("ContainerCreating", ""),
		"CrashLoopBackOff: exit code 7: boom …": crashed,
		"CrashLoopBackOff: it crashes":          wait("CrashLoopBackOff", "it crashes"),
		"":                                      {},
	} {
		if got := WhyWaiting(p, Role{Status: &status}, time.Now()); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := WhyWaiting(p, Role{}, time.Now()); got != "" {
		t.Errorf("a container without a status: %q", got)
	}
}

// TestWhyItStays: a pod that is being terminated says why it cannot be removed, also one that has completed.
func TestWhyItStays(t *testing.T) {
	t.Parallel()
	for _, phase := range []v1.PodPhase{v1.PodRunning, v1.PodSucceeded, v1.PodFailed} {
		p := &v1.Pod{Status: v1.PodStatus{Phase: phase, Reason: "FailedKillPod", Message: "DEL: the plugin says no"}}
		p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		if got := Why(p, time.Now()); got != "DEL: the plugin says no" {
			t.Errorf("%s: %q", phase, got)
		}
	}
}

// TestUnmounted: a volume that keeps a pod from starting is said first, and of no container.
func TestUnmounted(t *testing.T) {
	p := &v1.Pod{}
	p.Status.Phase = v1.PodPending
	p.Spec.Containers = []v1.Container{{Name: "c"}}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c"}}
	why := "MountVolume.SetUp failed for volume \"v\": no StorageClass \"fsat\""
	p.Status.ContainerStatuses[0].State.Waiting = &v1.ContainerStateWaiting{Reason: "ContainerCreating", Message: why}
	p.Status.Conditions = []v1.PodCondition{{
		Type: v1.PodReadyToStartContainers, Status: v1.ConditionFalse, Reason: "FailedMount", Message: why,
	}}
	if got := Why(p, time.Now()); got != `volume "v": no StorageClass "fsat"` {
		t.Errorf("got %q", got)
	}
}
