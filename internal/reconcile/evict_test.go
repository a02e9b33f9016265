package reconcile_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/runtime/fake"
)

// ledger is a Disk whose measurements take as long as configured.
type ledger struct {
	mu       sync.Mutex
	used     int64
	slow     time.Duration
	err      error
	measured []string // of which instances
}

func (l *ledger) Measure(ctx context.Context, _ *v1.Pod, instances []pod.Container) (pod.Usage, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range instances {
		l.measured = append(l.measured, c.ID)
	}
	used, err, slow := l.used, l.err, l.slow
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
	}
	return pod.Usage{Containers: map[string]int64{"a": used}}, err
}

func (l *ledger) set(used int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used, l.err = used, err
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.measured)
}

// TestDiskLimit: a pod with a disk limit is measured every 10 s, in parallel to its worker, and is
// terminated when it exceeds the limit. A pod without a limit is never measured.
func TestDiskLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {}, "b:1": {}})
		l := &ledger{used: 10, slow: 5 * time.Second}
		h := start(t, rt, func(o *reconcile.Options) { o.Disk = l })
		defer h.stop()
		p := newPod("web", "u1", v1.RestartPolicyAlways, "a")
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("10")}
		h.want(p, newPod("other", "u2", v1.RestartPolicyAlways, "b"))
		after(time.Second)
		// While it is measured the pod is served.
		rt.Exit("u1-a-0", 1)
		after(time.Second)
		h.wantLiving("u1-a-1 u2-b-0")
		after(58 * time.Second)
		if got := l.count(); got < 4 || got > 7 {
			t.Errorf("measured %d times in a minute: %v", got, l.measured)
		}
		l.set(11, errors.New("not now"))
		after(30 * time.Second)
		h.wantLiving("u1-a-1 u2-b-0")
		l.set(11, nil)
		after(90 * time.Second)
		h.wantLiving("u2-b-0")
		h.wantPhase("web", v1.PodFailed)
		if s := h.board.get("web").Status; s.Reason != "Evicted" || s.Message != "Pod ephemeral local storage usage exceeds the total limit of containers 10." {
			t.Errorf("%s: %s", s.Reason, s.Message)
		}
		before := l.count()
		after(5 * time.Minute)
		if l.count() != before {
			t.Error("measured though nothing of it lives")
		}
		if l.measured[len(l.measured)-1] != "u1-a-1" {
			t.Errorf("not the newest instance: %v", l.measured)
		}
	})
}

// TestDiskLimitOfAWorkload: the pods of a workload are made anew when anything changes; a long measurement goes on.
func TestDiskLimitOfAWorkload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {}})
		h := start(t, rt, func(o *reconcile.Options) { o.Disk = &ledger{used: 11, slow: 70 * time.Second} })
		defer h.stop()
		p := newPod("web", "u1", v1.RestartPolicyAlways, "a")
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("10")}
		for range 6 {
			h.want(p.DeepCopy())
			after(30 * time.Second)
		}
		h.wantPhase("web", v1.PodFailed)
		p = p.DeepCopy()
		p.Annotations = map[string]string{"of": "another set"}
		h.want(p)
		after(time.Minute)
		h.wantLiving("")
	})
}
