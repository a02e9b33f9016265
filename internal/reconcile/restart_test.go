package reconcile_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/runtime/fake"
)

// requests are requests to restart containers, in memory.
type requests struct {
	mu      sync.Mutex
	all     map[pod.RestartRequest]bool
	changed chan struct{}
}

func newRequests() *requests {
	return &requests{all: map[pod.RestartRequest]bool{}, changed: make(chan struct{})}
}

func (r *requests) Of(uid pod.UID) (of []pod.RestartRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for q := range r.all {
		if q.UID == uid {
			of = append(of, q)
		}
	}
	return of
}

func (r *requests) Remove(q pod.RestartRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, q)
}

// post makes requests, and wakes the loop once.
func (r *requests) post(all ...pod.RestartRequest) {
	r.mu.Lock()
	for _, q := range all {
		r.all[q] = true
	}
	r.mu.Unlock()
	r.changed <- struct{}{}
	synctest.Wait()
}

func (r *requests) left() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

func (r *requests) option(o *reconcile.Options) { o.Requests, o.Requested = r, r.changed }

func of(id string) pod.RestartRequest {
	parts := strings.Split(id, "-") // u1-a-0
	return pod.RestartRequest{UID: pod.UID(parts[0]), Container: parts[1], ID: id}
}

// TestRestartOnRequest: the instance that is named ends gracefully and the next one starts at once. A request that is
// repeated, twice at once or for an instance that is gone, restarts nothing.
func TestRestartOnRequest(t *testing.T) {
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyNever} {
		synctest.Test(t, func(t *testing.T) {
			q := newRequests()
			rt := runtimeWith(map[string]fake.Script{"a:1": {}, "b:1": {}})
			rt.IgnoreTerm("a")
			h := start(t, rt, q.option)
			defer h.stop()
			h.want(newPod("web", "u1", policy, "a", "b"))
			q.post(of("u1-a-0"))
			q.post(of("u1-a-0"))
			if q.left() > 0 {
				t.Errorf("%s: not answered", policy)
			}
			h.wantLiving("u1-a-0 u1-b-0") // within its grace period
			after(30 * time.Second)
			h.wantLiving("u1-a-1 u1-b-0")
			if n := h.board.get("web").Status.ContainerStatuses[0].RestartCount; n != 1 {
				t.Errorf("%s: %d restarts", policy, n)
			}
			q.post(of("u1-a-0"), of("u1-nobody-0"))
			after(time.Minute)
			h.wantLiving("u1-a-1 u1-b-0")
			if q.left() > 0 {
				t.Errorf("%s: not answered: %d", policy, q.left())
			}
		})
	}
}

// TestRestartEndsBackoff: a container in its back-off starts at once, also if it exited by itself.
func TestRestartEndsBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newRequests()
		h := start(t, runtimeWith(map[string]fake.Script{"a:1": {Run: time.Second, Exit: 1}}), q.option)
		defer h.stop()
		h.want(web())
		after(40 * time.Second) // it waits for 40 s after its third exit
		h.wantLiving("")
		before := h.board.get("web").Status.ContainerStatuses[0]
		q.post(of("u1-a-" + before.ContainerID[len(before.ContainerID)-1:]))
		if now := h.board.get("web").Status.ContainerStatuses[0]; now.State.Running == nil || now.RestartCount != before.RestartCount+1 {
			t.Errorf("after the request: %+v, before: %+v", now, before)
		}
	})
}

// TestRestartAfterKill: the process that accepted a request is killed before its effect: the next one carries it out,
// although the request is gone and the policy is Never. One that was not accepted is accepted by the next process.
func TestRestartAfterKill(t *testing.T) {
	for _, accepted := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			q := newRequests()
			rt := runtimeWith(map[string]fake.Script{"a:1": {}})
			rt.IgnoreTerm("a")
			h := start(t, rt, q.option)
			h.want(newPod("web", "u1", v1.RestartPolicyNever, "a"))
			if accepted {
				q.post(of("u1-a-0"))
			}
			h.stop()
			if !accepted {
				q.all[of("u1-a-0")] = true
			}
			after(3 * time.Second)
			h = start(t, rt, q.option)
			defer h.stop()
			h.want(newPod("web", "u1", v1.RestartPolicyNever, "a"))
			after(30 * time.Second)
			h.wantLiving("u1-a-1")
			if s := h.board.get("web").Status; s.Phase != v1.PodRunning || s.ContainerStatuses[0].RestartCount != 1 || q.left() > 0 {
				t.Errorf("accepted %t: %+v, left %d", accepted, s, q.left())
			}
		})
	}
}

// TestRestartBesideALostExit: a request waits while the exit of another container is lost and nothing else is planned.
func TestRestartBesideALostExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newRequests()
		rt := runtimeWith(map[string]fake.Script{"a:1": {}, "b:1": {}})
		h := start(t, rt, q.option)
		defer h.stop()
		h.want(newPod("web", "u1", v1.RestartPolicyAlways, "a", "b"))
		rt.Fail("KillRemains", errors.New("it may still run"))
		rt.LoseTask("u1-a-0")
		after(5 * time.Second)
		q.post(of("u1-b-0"))
		after(time.Minute)
		if q.left() != 1 {
			t.Error("a request was dropped")
		}
		rt.Fail("KillRemains", nil)
		after(time.Minute)
		h.wantLiving("u1-a-1 u1-b-1")
		if q.left() > 0 {
			t.Error("not answered")
		}
	})
}

// TestRestartWhileRemoved: a pod that is being removed is not restarted.
func TestRestartWhileRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newRequests()
		rt := forever()
		rt.IgnoreTerm("a")
		h := start(t, rt, q.option)
		defer h.stop()
		h.want(web())
		h.want()
		q.post(of("u1-a-0"))
		after(30 * time.Second)
		h.wantEmpty()
	})
}

// TestRetryOnRequest: a container that waits for its image tries again at once, also while a pull is in progress.
func TestRetryOnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newRequests()
		rt := fake.New("boot-1")
		rt.Fail("Pull", errors.New("no such host"))
		h := start(t, rt, q.option)
		defer h.stop()
		h.want(web())
		after(time.Minute) // the next pull is in 40 s or later
		rt.AddImage("a:1", fake.Script{})
		h.wantLiving("")
		q.post(pod.RestartRequest{UID: "u1", Container: "a"})
		h.wantLiving("u1-a-0")
		if q.left() > 0 {
			t.Error("not answered")
		}
	})
}
