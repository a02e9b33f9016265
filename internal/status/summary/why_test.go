package summary

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
