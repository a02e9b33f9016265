package reconcile_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/fake"
)

func (h *house) wantEvents(when, want string) {
	h.t.Helper()
	synctest.Wait()
	if got := h.events.take(); got != want {
		h.t.Errorf("events %s:\n%s\nwant\n%s", when, got, want)
	}
}

func TestEventsOfACrashLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, runtimeWith(map[string]fake.Script{"a:1": {Run: time.Second, Exit: 1}}))
		defer h.stop()
		h.want(web())
		const started = `normal Pulled web/a: Image "a:1" is present on this machine already
normal Created web/a: Created container a
normal Started web/a: Started container a`
		h.wantEvents("of the start", started)
		after(1500 * time.Millisecond) // it is restarted at once the first time
		h.wantEvents("of the first restart", started)
		after(time.Second)
		const backoff = "warning BackOff web/a: Back-off restarting failed container a"
		h.wantEvents("of the back-off", backoff)
		after(8 * time.Second) // nothing new
		h.wantEvents("while it waits", "")
		after(3 * time.Second)
		h.wantEvents("of the second restart", started+"\n"+backoff)
		h.want()
		h.wantEvents("of the removal", "")
	})
}

func TestEventsOfAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		rt.IgnoreTerm("a")
		h := start(t, rt)
		defer h.stop()
		h.want(web())
		h.events.take()
		h.want()
		h.wantEvents("of the stop", "normal Killing web/a: Stopping container a: not wanted")
		after(31 * time.Second)
		h.wantEvents("of the kill", "normal Killing web/a: Killing container a: grace period over")
	})
}

// TestEventsOfPreferLocal: a pod that starts from a local image has an event that says that the
// image was not pulled, and why.
func TestEventsOfPreferLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		rt.Fail("Pull", errors.New("registry says no"))
		h := start(t, rt, func(o *reconcile.Options) { o.PreferLocal = true })
		defer h.stop()
		p := web()
		p.Spec.Containers[0].ImagePullPolicy = v1.PullAlways
		h.want(p)
		h.wantEvents("of the start", `normal Pulling web/a: Pulling image "a:1"
warning Failed web/a: Failed to pull image "a:1", starting from the one that is present: registry says no
normal Created web/a: Created container a
normal Started web/a: Started container a`)
	})
}

func TestEventsOfPulls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New("boot-1")
		rt.Fail("Pull", errors.New("registry says no"))
		h := start(t, rt)
		defer h.stop()
		h.want(web())
		const failed = `normal Pulling web/a: Pulling image "a:1"
warning Failed web/a: Failed to pull image "a:1": registry says no`
		h.wantEvents("of the first pull", failed)
		after(10500 * time.Millisecond)
		h.wantEvents("of the second pull", failed+"\n"+`warning BackOff web/a: Back-off pulling image "a:1"`)
		rt.Fail("Pull", nil)
		after(21 * time.Second)
		h.wantEvents("of the third pull", `normal Pulling web/a: Pulling image "a:1"
normal Pulled web/a: Pulled image "a:1" in 0s
normal Created web/a: Created container a
normal Started web/a: Started container a`)
	})
}

func TestEventsOfProbesAndManifests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		rt.OnExec(commands(map[string]func() int{"live": from(3500*time.Millisecond, 0, 1)}))
		h := start(t, rt)
		defer h.stop()
		p := web()
		p.Spec.Containers[0].LivenessProbe = execProbe("live")
		h.want(p)
		h.events.take()
		after(5200 * time.Millisecond)
		const unhealthy = "warning Unhealthy web/a: Liveness probe failed: exit code 1"
		h.wantEvents("of two failures", unhealthy+"\n"+unhealthy+`
normal Killing web/a: Stopping container a: failed liveness probe
normal Pulled web/a: Image "a:1" is present on this machine already
normal Created web/a: Created container a
normal Started web/a: Started container a
`+unhealthy)

		bad := desired(p)
		bad.Problems = []manifest.Problem{{Origin: manifest.Origin{Source: "file", Path: "/m/web.yaml"}, Err: errors.New("/m/web.yaml:12: bad")}}
		rt.OnExec(commands(map[string]func() int{"live": always(0)}))
		for range 2 { // once only
			h.desired <- bad
			synctest.Wait()
		}
		h.wantEvents("of a manifest that turned bad", "warning FailedValidation web/: /m/web.yaml:12: bad")
		h.want(p)
		h.desired <- bad
		h.wantEvents("of one that turned bad again", "warning FailedValidation web/: /m/web.yaml:12: bad")
	})
}

// brokenVolumes fails for all volumes.
type brokenVolumes struct{ noVolumes }

func (brokenVolumes) Setup(context.Context, pod.Inside) ([]pod.Mount, error) {
	return nil, notMounted()
}

func notMounted() error {
	return &runtime.ReasonError{Reason: pod.ReasonFailedMount, Err: errors.New("hostPath /x is not there")}
}

// lateVolumes has volumes that nobody can mount before there is a driver.
type lateVolumes struct {
	noVolumes
	driver *atomic.Bool
}

func (v lateVolumes) Mount(context.Context, pod.Inside) error {
	if !v.driver.Load() {
		return notMounted()
	}
	return nil
}

// TestNothingRunsBeforeTheVolumes: not even a container that mounts none, or an init container. One that starts again
// does not wait for what others mount.
func TestNothingRunsBeforeTheVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var driver atomic.Bool
		h := start(t, forever(), func(o *reconcile.Options) { o.Volumes = lateVolumes{driver: &driver} })
		defer h.stop()
		p := newPod("web", "u1", v1.RestartPolicyAlways, "a", "b")
		p.Spec.Volumes = []v1.Volume{{Name: "v"}}
		h.want(p)
		after(time.Minute)
		h.wantLiving("")
		if c := conditionOf(h.board.get("web"), v1.PodReadyToStartContainers); c.Status != v1.ConditionFalse || c.Reason != pod.ReasonFailedMount {
			t.Errorf("condition %v", c)
		}
		driver.Store(true)
		after(time.Minute)
		first := h.living()
		driver.Store(false)
		h.rt.Exit(strings.Fields(first)[0], 1)
		after(time.Minute)
		if second := h.living(); len(strings.Fields(first)) != 2 || len(strings.Fields(second)) != 2 || second == first {
			t.Errorf("with the volumes %q run, after the end of one without a driver %q", first, second)
		}
	})
}

func TestEventsOfWhatCannotBeMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		rt.Fail("CreateSandbox", errors.New("no namespace left"))
		h := start(t, rt, func(o *reconcile.Options) { o.Volumes = brokenVolumes{} })
		defer h.stop()
		h.want(web())
		h.wantEvents("without a sandbox", `normal Pulled web/a: Image "a:1" is present on this machine already
warning FailedCreatePodSandBox web/: no namespace left`)
		rt.Fail("CreateSandbox", nil)
		after(1500 * time.Millisecond)
		h.wantEvents("without a volume", "warning FailedMount web/: hostPath /x is not there")
	})
}

func TestEventsOfAPodThatCannotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, forever())
		defer h.stop()
		p := newPod("web", "u1", v1.RestartPolicyNever, "a")
		p.Spec.NodeSelector = map[string]string{"gpu": "yes"}
		h.want(p)
		after(time.Minute)
		h.wantEvents("of an unfit node", "warning NodeAffinity web/: the node does not have what nodeSelector asks for: gpu=yes")
	})
}

// staleVolumes fails to update volumes, with the error in why.
type staleVolumes struct {
	noVolumes
	why *atomic.Pointer[string]
}

func (v staleVolumes) Refresh(context.Context, pod.Inside) error {
	if why := v.why.Load(); why != nil {
		return errors.New(*why)
	}
	return nil
}

// TestEventsOfVolumesNotUpToDate: an edit that a running pod cannot follow makes one event, not one
// per attempt, until the error changes or is resolved.
func TestEventsOfVolumesNotUpToDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var why atomic.Pointer[string]
		var log strings.Builder
		h := start(t, forever(), func(o *reconcile.Options) {
			o.Volumes, o.Log = staleVolumes{why: &why}, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		})
		defer h.stop()
		p := web()
		p.Spec.Volumes = []v1.Volume{{Name: "v"}}
		p.Spec.Volumes[0].ConfigMap = &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "m"}}
		d := desired(p)
		h.desired <- d
		after(time.Second)
		h.events.take()
		edit := func(to string, failure *string) {
			d.Objects.ConfigMaps = map[pod.Key]*v1.ConfigMap{{Namespace: "default", Name: "m"}: {Data: map[string]string{"k": to}}}
			why.Store(failure)
			h.desired <- d
			after(time.Minute)
		}
		gone, other := "key k is gone", "key l is gone"
		edit("a", &gone)
		h.wantEvents("of an edit", "warning FailedMount web/: not up to date: key k is gone")
		edit("b", &other)
		h.wantEvents("of another", "warning FailedMount web/: not up to date: key l is gone")
		edit("c", nil)
		h.wantEvents("when it is mended", "")
		edit("d", &other)
		h.wantEvents("of the same again", "warning FailedMount web/: not up to date: key l is gone")
		if said := strings.Count(log.String(), "not up to date"); said != 3 {
			t.Errorf("logged %d times", said)
		}
	})
}
