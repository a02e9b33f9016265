package reconcile_test

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/fake"
)

// TestPullProgress: the status shows the progress of a pull, without inspections for it.
func TestPullProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New("boot-1")
		rt.SlowPull("a:1", &pod.Progress{})
		h := start(t, rt)
		defer h.stop()
		h.want(newPod("web", "u1", v1.RestartPolicyAlways, "a"))
		shows := func(want string) {
			t.Helper()
			if w := h.board.get("web").Status.ContainerStatuses[0].State.Waiting; w == nil || w.Reason != "ContainerCreating" || w.Message != want {
				t.Errorf("waiting %+v, want %q", w, want)
			}
		}
		shows(`pulling image "a:1"`)
		rt.SlowPull("a:1", &pod.Progress{Fetched: 1_500_000, Total: 6_000_000, Rate: 500_000, Done: 1, Layers: 3})
		calls := len(rt.Calls())
		after(1100 * time.Millisecond)
		shows(`pulling image "a:1": 1.5MB of 6.0MB, 500.0kB/s, 1 of 3 layers`)
		for _, call := range rt.Calls()[calls:] {
			if call != "List " {
				t.Errorf("for a status: %s", call)
			}
		}
		rt.SlowPull("a:1", nil)
		after(time.Second)
		h.wantLiving("u1-a-0")
	})
}
