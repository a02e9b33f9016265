package agent

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestOnceShowsNothingOfAnEarlierRun: while what is left of an earlier run cannot be removed, the pod has
// not been started, the reason is in its status, and nothing of the earlier run is.
func TestOnceShowsNothingOfAnEarlierRun(t *testing.T) {
	for _, c := range []struct{ name, policy, first, second string }{
		{"a job", "Never", "job:1", "job:1"},
		{"a job that failed", "Never", "bad:1", "bad:1"},
		{"a service from another manifest", "Always", "web:1", "slow:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			onFake(t, func(r *onceTest) {
				refused := errors.New("the plugin says no")
				r.runtime.Fail("RemoveSandbox", refused)
				r.mustRun(onceManifest("a", c.policy, c.first))
				r.once.Timeout = 40 * time.Second
				result, _ := r.mustRun(onceManifest("a", c.policy, c.second))
				s := result.Pods[0].Status
				if !result.TimedOut || s.Phase != "Pending" {
					t.Errorf("%+v", s)
				}
				if w := s.ContainerStatuses[0]; w.State.Waiting == nil || !strings.Contains(w.State.Waiting.Message, refused.Error()) ||
					w.LastTerminationState.Terminated != nil || w.ContainerID != "" || s.PodIP != "" {
					t.Errorf("%+v", w)
				}
				r.runtime.Fail("RemoveSandbox", nil)
				if result, _ = r.mustRun(onceManifest("a", c.policy, c.second)); result.TimedOut || result.Pods[0].Status.ContainerStatuses[0].State.Waiting != nil {
					t.Errorf("afterwards: %+v", result.Pods[0].Status)
				}
			})
		})
	}
}
