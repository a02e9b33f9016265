package reconcile_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/runtime/fake"
)

// hungShims is a runtime in which the shims of some instances do not respond.
type hungShims struct {
	*fake.Runtime
	mu   sync.Mutex
	hung map[string]bool
}

func (h *hungShims) set(hung bool, ids ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		h.hung[id] = hung
	}
}

func (h *hungShims) ask(ctx context.Context, id string) error {
	h.mu.Lock()
	hung := h.hung[id]
	h.mu.Unlock()
	if !hung {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

// SignalContainer implements runtime.Containers.
func (h *hungShims) SignalContainer(ctx context.Context, id, signal string) error {
	if err := h.ask(ctx, id); err != nil {
		return err
	}
	return h.Runtime.SignalContainer(ctx, id, signal)
}

// ResizeContainer implements runtime.Containers.
func (h *hungShims) ResizeContainer(ctx context.Context, id string, p *v1.Pod, c *v1.Container, cpus string) error {
	if err := h.ask(ctx, id); err != nil {
		return err
	}
	return h.Runtime.ResizeContainer(ctx, id, p, c, cpus)
}

func withHungShims(t *testing.T, images map[string]fake.Script) (*house, *hungShims) {
	shims := &hungShims{Runtime: runtimeWith(images), hung: map[string]bool{}}
	return start(t, shims.Runtime, func(o *reconcile.Options) { o.Containers = shims }), shims
}

// TestASignalThatHangs: the containers of a pod are terminated although the shim of another of its
// containers hangs at a TERM or KILL. That container is terminated when its shim responds again.
func TestASignalThatHangs(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h, shims := withHungShims(t, map[string]fake.Script{"a:1": {}, "b:1": {}, "c:1": {}})
			defer h.stop()
			if deaf { // they are killed
				h.rt.IgnoreTerm("a")
				h.rt.IgnoreTerm("c")
			}
			p := newPod("web", "u1", v1.RestartPolicyAlways, "a", "b", "c")
			p.Spec.TerminationGracePeriodSeconds = new(int64(30))
			h.want(p)
			h.wantLiving("u1-a-0 u1-b-0 u1-c-0")
			if !deaf {
				shims.set(true, "u1-a-0")
			}
			h.want()
			after(12 * time.Second)
			if deaf {
				h.wantLiving("u1-a-0 u1-c-0")
				shims.set(true, "u1-a-0")
				after(30 * time.Second)
			}
			h.wantLiving("u1-a-0")
			after(10 * time.Minute)
			shims.set(false, "u1-a-0")
			after(80 * time.Second)
			h.wantLiving("")
			if h.board.get("web") != nil {
				t.Error("the pod is still shown")
			}
		})
	}
}

// TestAKillBesideAHungShim: the kill at the end of a grace period does not wait for a container
// whose shim hangs.
func TestAKillBesideAHungShim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, shims := withHungShims(t, map[string]fake.Script{"a:1": {}, "b:1": {}})
		defer h.stop()
		h.rt.IgnoreTerm("b")
		p := newPod("web", "u1", v1.RestartPolicyAlways, "a", "b")
		p.Spec.TerminationGracePeriodSeconds = new(int64(100))
		h.want(p)
		shims.set(true, "u1-a-0")
		h.want()
		after(100 * time.Second)
		h.wantLiving("u1-a-0 u1-b-0")
		after(21 * time.Second)
		h.wantLiving("u1-a-0")
		shims.set(false, "u1-a-0")
		after(time.Minute)
		h.wantLiving("")
	})
}

// TestARestartBesideAHungShim: a container whose liveness probe fails, but which cannot be
// terminated, does not delay the restart of the pod's other containers.
func TestARestartBesideAHungShim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, shims := withHungShims(t, map[string]fake.Script{"a:1": {}, "b:1": {}})
		defer h.stop()
		h.rt.OnExec(func(context.Context, string, []string) (int, error) { return 1, nil })
		p := newPod("web", "u1", v1.RestartPolicyAlways, "a", "b")
		p.Spec.Containers[0].LivenessProbe = execProbe("bad")
		h.want(p)
		shims.set(true, "u1-a-0")
		after(2 * time.Minute)
		h.wantLiving("u1-a-0 u1-b-0")
		h.rt.Exit("u1-b-0", 1)
		after(21 * time.Second) // its back-off, and the signal that was being sent
		h.wantLiving("u1-a-0 u1-b-1")
	})
}

// TestAResizeThatHangs: the resize fails after the timeout, is shown as failed, and succeeds when
// the shim responds again.
func TestAResizeThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, shims := withHungShims(t, map[string]fake.Script{"a:1": {}, "b:1": {}})
		defer h.stop()
		sized := func(cpu string) *v1.Pod {
			p := newPod("web", "u1", v1.RestartPolicyAlways, "a", "b")
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
			return p
		}
		h.want(sized("1"))
		shims.set(true, "u1-a-0")
		h.want(sized("2"))
		after(3 * time.Minute)
		if events := h.events.take(); !strings.Contains(events, "ResizeError") || !strings.Contains(events, "not done within 2m0s") {
			t.Errorf("events:\n%s", events)
		}
		h.rt.Exit("u1-b-0", 1)
		after(3 * time.Minute)
		h.wantLiving("u1-a-0 u1-b-1")
		shims.set(false, "u1-a-0")
		after(10 * time.Minute)
		if events := h.events.take(); !strings.Contains(events, "ResizeCompleted") {
			t.Errorf("events:\n%s", events)
		}
	})
}
