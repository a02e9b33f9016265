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
