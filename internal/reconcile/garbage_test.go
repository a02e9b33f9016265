package reconcile_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/runtime/fake"
)

// shelf is a Logs that records which logs exist.
type shelf struct {
	noLogs
	mu   sync.Mutex
	logs []pod.Instance
}

func (s *shelf) Follow(i pod.Instance, _ int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.logs, i) {
		s.logs = append(s.logs, i)
	}
}

func (s *shelf) RemoveLogs(last pod.Instance) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logs = slices.DeleteFunc(s.logs, func(i pod.Instance) bool {
		return i.Key == last.Key && i.UID == last.UID && i.Container == last.Container && i.Attempt <= last.Attempt
	})
	return nil
}

func (s *shelf) Forget(uid pod.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logs = slices.DeleteFunc(s.logs, func(i pod.Instance) bool { return i.UID == uid })
}

func (s *shelf) attempts() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []int
	for _, i := range s.logs {
		out = append(out, i.Attempt)
	}
	return out
}

// TestOneDeadInstanceStaysWithItsLog: of a container that has exited fifty times, the last two
// instances and their logs exist.
func TestOneDeadInstanceStaysWithItsLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, logs := runtimeWith(map[string]fake.Script{"a:1": {}}), &shelf{}
		h := start(t, rt, func(o *reconcile.Options) { o.Logs = logs })
		defer h.stop()
		h.want(web())
		for n := range 50 {
			rt.Exit(fmt.Sprintf("u1-a-%d", n), 1)
			after(15 * time.Minute) // longer than any back-off, and then so long that it begins anew
			h.wantLiving(fmt.Sprintf("u1-a-%d", n+1))
			seen, err := rt.Inspect(t.Context(), pod.Key{Namespace: "default", Name: "web"})
			if err != nil || len(seen.Containers) != 2 {
				t.Fatalf("after %d deaths: %+v, %v", n+1, seen.Containers, err)
			}
			if got := logs.attempts(); !slices.Equal(got, []int{n, n + 1}) {
				t.Fatalf("logs of %v after %d deaths", got, n+1)
			}
		}
		h.want()
		h.wantEmpty()
		if got := logs.attempts(); len(got) > 0 {
			t.Errorf("logs left: %v", got)
		}
	})
}
