package reconcile_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/fake"
)

// hung is a runtime whose CreateSandbox takes long, or never returns.
type hung struct {
	*fake.Runtime
	takes time.Duration
}

// CreateSandbox implements runtime.Sandboxes.
func (h hung) CreateSandbox(ctx context.Context, p *v1.Pod, attempt int) error {
	select {
	case <-time.After(h.takes):
		return h.Runtime.CreateSandbox(ctx, p, attempt)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hungFor is a runtime that hangs in CreateSandbox and in the starts of some pods.
type hungFor struct {
	*fake.Runtime
	pods map[string]bool
}

// CreateSandbox implements runtime.Sandboxes.
func (h hungFor) CreateSandbox(ctx context.Context, p *v1.Pod, attempt int) error {
	if h.pods[p.Name] {
		return hung{h.Runtime, time.Hour}.CreateSandbox(ctx, p, attempt)
	}
	return h.Runtime.CreateSandbox(ctx, p, attempt)
}

// TestHungStartsKeepNoOtherFromStarting: as many pods as may start in parallel hang, again and
// again. The other pods start nevertheless.
func TestHungStartsKeepNoOtherFromStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {}})
		h := start(t, rt, func(o *reconcile.Options) {
			o.Sandboxes, o.Parallel = hungFor{rt, map[string]bool{"h0": true, "h1": true}}, 2
		})
		defer h.stop()
		hung := []*v1.Pod{newPod("h0", "h0", v1.RestartPolicyAlways, "a"), newPod("h1", "h1", v1.RestartPolicyAlways, "a")}
		h.want(hung...)
		h.want(append(hung, web())...)
		after(15 * time.Second)
		h.wantLiving("u1-a-0")
		// In the midst of their next tries too.
		after(runtime.Timeout)
		if why := h.board.get("h0").Status.ContainerStatuses[0].State.Waiting.Message; !strings.Contains(why, "not done within 2m0s") {
			t.Errorf("what hangs says %q", why)
		}
		h.rt.Exit("u1-a-0", 1)
		after(15 * time.Second)
		h.wantLiving("u1-a-1")
	})
}

// TestStopWhileTheRuntimeHangs: when podrun is stopped it completes the actions in progress, but
// does not wait for them without end, however many pods wait for a slot.
func TestStopWhileTheRuntimeHangs(t *testing.T) {
	for _, tt := range []struct {
		takes time.Duration
		made  int
	}{{10 * time.Second, 2}, {time.Hour, 0}} {
		synctest.Test(t, func(t *testing.T) {
			rt := runtimeWith(map[string]fake.Script{"a:1": {}})
			h := start(t, rt, func(o *reconcile.Options) { o.Sandboxes, o.Parallel = hung{rt, tt.takes}, 2 })
			var pods []*v1.Pod
			for i := range 5 {
				pods = append(pods, newPod(fmt.Sprint("p", i), types.UID(fmt.Sprint("u", i)), v1.RestartPolicyAlways, "a"))
			}
			h.want(pods...)
			begin := time.Now()
			h.stop()
			if took := time.Since(begin); took > 15*time.Second {
				t.Errorf("taking %s: stopped after %s", tt.takes, took)
			}
			all, err := rt.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			made := 0
			for _, o := range all {
				made += len(o.Sandboxes)
			}
			if made != tt.made {
				t.Errorf("taking %s: %d sandboxes were made, want %d", tt.takes, made, tt.made)
			}
		})
	}
}

// TestRemovalEndsAHungStart: a start that hangs is not waited for when the manifest is removed, but
// is when it can only not be read.
func TestRemovalEndsAHungStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {}})
		h := start(t, rt, func(o *reconcile.Options) { o.Sandboxes = hung{rt, time.Minute} })
		defer h.stop()
		h.want(web())
		after(time.Second)
		h.desired <- manifest.Desired{} // incomplete
		after(20 * time.Second)
		if h.board.get("web") == nil {
			t.Error("the pod ended although its manifest may exist")
		}
		h.want()
		after(20 * time.Second)
		if shown := h.board.get("web"); shown != nil {
			t.Errorf("20 s after the manifest was removed: %+v", shown.Status)
		}
		if all, err := rt.List(t.Context()); err != nil || len(all) > 0 {
			t.Errorf("left: %+v, %v", all, err)
		}
	})
}

// plugin is a runtime in which a device plugin hangs while a sandbox is made.
type plugin struct{ *fake.Runtime }

// CreateSandbox implements runtime.Sandboxes.
func (p plugin) CreateSandbox(ctx context.Context, q *v1.Pod, attempt int) error {
	return runtime.Call(ctx, "Waiting", "for a plugin", func(ctx context.Context) error {
		return hung{p.Runtime, time.Minute}.CreateSandbox(ctx, q, attempt)
	})
}

// TestRemovalEndsAHungPlugin: a pod says that it waits for a device plugin that hangs, and is gone as soon as its manifest
// is.
func TestRemovalEndsAHungPlugin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {}})
		h := start(t, rt, func(o *reconcile.Options) { o.Sandboxes = plugin{rt} })
		defer h.stop()
		h.want(web())
		after(10 * time.Second)
		if events := h.events.take(); !strings.Contains(events, "Waiting web/: for a plugin") {
			t.Errorf("events:\n%s", events)
		}
		h.want()
		after(time.Second)
		if shown := h.board.get("web"); shown != nil {
			t.Errorf("1 s after the manifest was removed: %+v", shown.Status)
		}
	})
}

// hungVolumes has a volume whose file system does not answer when hangs is set.
type hungVolumes struct {
	noVolumes
	hangs *atomic.Bool
}

// Setup implements execute.Volumes.
func (v hungVolumes) Setup(ctx context.Context, _ pod.Inside) ([]pod.Mount, error) {
	if v.hangs.Load() {
		<-ctx.Done()
	}
	return nil, ctx.Err()
}

// counting counts what is published.
type counting struct {
	*board
	n atomic.Int32
}

// Publish implements reconcile.Publisher.
func (c *counting) Publish(p *v1.Pod, seen time.Time, settled bool) error {
	c.n.Add(1)
	return c.board.Publish(p, seen, settled)
}

// TestExitIsPublishedBeforeAHungStart: a container that has exited is not shown as running and ready while its next start
// hangs; what the start waits for is recorded soon, and after a while its failure is shown. An exit costs one status
// more.
func TestExitIsPublishedBeforeAHungStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := hungVolumes{hangs: &atomic.Bool{}}
		var count *counting
		h := start(t, forever(), func(o *reconcile.Options) {
			b, _ := o.Publisher.(*board)
			count = &counting{board: b}
			o.Volumes, o.Publisher = v, count
		})
		defer h.stop()
		p, next := web(), newPod("next", "u2", v1.RestartPolicyAlways, "a")
		p.Spec.Volumes = []v1.Volume{{Name: "far"}}
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "far", MountPath: "/far"}}
		h.want(p)
		h.wantState("web", true, true, 0)
		count.n.Store(0)
		h.rt.Exit("u1-a-0", 1)
		after(time.Second)
		h.wantState("web", true, true, 1)
		if n := count.n.Load(); n != 3 {
			t.Errorf("a restart published %d statuses", n)
		}
		after(time.Hour)
		h.events.take()
		v.hangs.Store(true)
		h.rt.Exit("u1-a-1", 137)
		after(100 * time.Millisecond)
		h.wantState("web", false, false, 1)
		if s := h.board.get("web").Status.ContainerStatuses[0].State; s.Running != nil {
			t.Errorf("what has exited: %+v", s)
		}
		manifest.Annotate(next, pod.AnnotationAfter, "web")
		h.want(p, next)
		after(5 * time.Second)
		if events := h.events.take(); !strings.Contains(events, "warning FailedMount web/: MountVolume.SetUp has not ended yet for one of the volumes far") {
			t.Errorf("events:\n%s", events)
		}
		h.wantLiving("")
		after(runtime.Timeout)
		if w := h.board.get("web").Status.ContainerStatuses[0].State.Waiting; w == nil || !strings.Contains(w.Message, "not done within 2m0s") {
			t.Errorf("after a while: %+v", w)
		}
		v.hangs.Store(false)
		after(10 * time.Minute)
		h.wantState("web", true, true, 2)
		h.wantLiving("u1-a-2 u2-a-0")
	})
}

// judge fails the test if an exit is published before it is recorded.
type judge struct {
	*board
	t  *testing.T
	rt *fake.Runtime
}

// Publish implements reconcile.Publisher.
func (j judge) Publish(p *v1.Pod, seen time.Time, settled bool) error {
	for _, s := range p.Status.ContainerStatuses {
		if s.State.Terminated != nil && len(callsOf(j.rt, "ReapContainer ")) == 0 {
			j.t.Errorf("reported before it is recorded: %+v", s)
		}
	}
	return j.board.Publish(p, seen, settled)
}

// TestExitIsRecordedBeforeItIsReported: also the exit of one container of several, which a power cut must not undo.
func TestExitIsRecordedBeforeItIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {}, "b:1": {}})
		h := start(t, rt, func(o *reconcile.Options) {
			b, _ := o.Publisher.(*board)
			o.Publisher = judge{b, t, rt}
		})
		defer h.stop()
		h.want(newPod("job", "u1", v1.RestartPolicyNever, "a", "b"))
		after(time.Second)
		rt.Exit("u1-a-0", 3)
		after(time.Second)
		if s := h.board.get("job").Status.ContainerStatuses[0].State.Terminated; s == nil || s.ExitCode != 3 {
			t.Errorf("the exit is not reported: %+v", s)
		}
	})
}
