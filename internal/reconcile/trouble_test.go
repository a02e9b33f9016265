package reconcile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/runtime/fake"
)

// TestTroubleIsShown: when every action fails, as on a full disk, the status shows that the
// container has exited, and each error is logged once.
func TestTroubleIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {}})
		var said bytes.Buffer
		h := start(t, rt, func(o *reconcile.Options) { o.Log = slog.New(slog.NewTextHandler(&said, nil)) })
		h.want(web())
		h.wantLiving("u1-a-0")
		full := errors.New("no space left on device")
		calls := []string{"StartContainer", "ReapContainer", "Checkpoint"}
		for _, call := range calls {
			rt.Fail(call, full)
		}
		rt.Exit("u1-a-0", 1)
		after(time.Minute)
		c := h.board.get("web").Status.ContainerStatuses[0]
		if w := c.State.Waiting; c.Ready || w == nil || w.Reason != "CreateContainerError" {
			t.Errorf("shown as %+v", c.State)
		}
		for _, call := range calls {
			rt.Fail(call, nil)
		}
		after(time.Minute)
		h.wantLiving("u1-a-1")
		h.stop()
		for _, what := range []string{"pod sync failed; retrying\" pod=default/web err=\"reap"} {
			if n := strings.Count(said.String(), what); n != 1 {
				t.Errorf("%q was said %d times:\n%s", what, n, said.String())
			}
		}
	})
}

// TestVolumeImageComes: a volume's image that must be pulled first is not a failure. A failed pull
// of it is one, and is not attributed to the container's own image.
func TestVolumeImageComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {}})
		rt.SlowPull("files:1", &pod.Progress{})
		h := start(t, rt)
		defer h.stop()
		p := web()
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "files:1", PullPolicy: v1.PullIfNotPresent}}}}
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
		const present = `normal Pulled web/a: Image "a:1" is present on this machine already`
		rt.Fail("Pull", errors.New("registry says no"))
		h.want(p)
		h.wantEvents("when it cannot be pulled", present+`
normal Pulling web/: Pulling image "files:1"
`+present+`
warning Failed web/a: Error: volume "v": registry says no`)
		rt.Fail("Pull", nil)
		after(time.Minute)
		if got := h.events.take(); strings.Contains(got, "warning") || !strings.Contains(got, `normal Pulling web/: Pulling image "files:1"`) {
			t.Errorf("events while it is pulled:\n%s", got)
		}
		rt.SlowPull("files:1", nil)
		after(time.Minute)
		h.wantEvents("when it is there", `normal Pulled web/: Pulled image "files:1" in 50s
`+present+`
normal Created web/a: Created container a
normal Started web/a: Started container a`)
		mounts := h.board.get("web").Status.ContainerStatuses[0].VolumeMounts
		if len(mounts) != 1 || mounts[0].VolumeStatus == nil || mounts[0].VolumeStatus.Image.ImageRef == "" {
			t.Errorf("the status does not say which image is mounted: %+v", mounts)
		}
	})
}

// TestStatusIsWrittenLater: a status that cannot be written, as on a full disk, is written as soon
// as that is possible, even if nothing happens to the pod any more. The status of a removed pod is
// removed likewise. The error is logged once.
func TestStatusIsWrittenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {}})
		var said bytes.Buffer
		h := start(t, rt, func(o *reconcile.Options) { o.Log = slog.New(slog.NewTextHandler(&said, nil)) })
		h.want(web())
		h.wantLiving("u1-a-0")
		full := errors.New("no space left on device")
		h.board.fail(full)
		rt.Exit("u1-a-0", 1)
		after(time.Minute)
		h.wantLiving("u1-a-1")
		if n := h.board.get("web").Status.ContainerStatuses[0].RestartCount; n != 0 {
			t.Fatalf("%d restarts are shown, which could not be written", n)
		}
		h.board.fail(nil)
		after(time.Minute)
		if n := h.board.get("web").Status.ContainerStatuses[0].RestartCount; n != 1 {
			t.Errorf("%d restarts are shown a minute after there was space", n)
		}
		h.board.fail(full)
		h.want()
		after(time.Minute)
		h.board.fail(nil)
		after(time.Minute)
		if p := h.board.get("web"); p != nil {
			t.Errorf("a pod that is gone is shown as %+v", p.Status)
		}
		h.stop()
		if n := strings.Count(said.String(), "status not written"); n != 2 {
			t.Errorf("it was said %d times:\n%s", n, said.String())
		}
	})
}

// TestLeavingSaysWhy: the status of a pod that is being terminated for good follows its containers, and
// says why the pod cannot be removed, as long as that is so.
func TestLeavingSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		rt.IgnoreTerm("a")
		h := start(t, rt)
		defer h.stop()
		h.want(newPod("web", "u1", v1.RestartPolicyAlways, "a", "b"))
		after(10 * time.Second)
		rt.Fail("RemoveSandbox", errors.New("the plugin says no"))
		left := time.Now()
		h.want()
		after(10 * time.Second)
		state := func(c string) v1.ContainerState {
			return h.board.get("web").Status.ContainerStatuses[slices.Index([]string{"a", "b"}, c)].State
		}
		if state("a").Running == nil || state("b").Terminated == nil || h.board.get("web").Status.Message != "" {
			t.Errorf("within the grace period: %+v", h.board.get("web").Status)
		}
		after(30 * time.Second)
		p := h.board.get("web")
		if state("a").Terminated == nil || p.Status.Reason != "FailedKillPod" || !strings.Contains(p.Status.Message, "the plugin says no") {
			t.Errorf("after it: %+v", p.Status)
		}
		if !p.DeletionTimestamp.Time.Equal(left.Add(30*time.Second)) || *p.DeletionGracePeriodSeconds != 30 {
			t.Errorf("it is to be gone at %s", p.DeletionTimestamp)
		}
		// It is wanted again, and has to wait for what is left of its former run.
		readyAt := func() metav1.Time { return conditionOf(h.board.get("web"), v1.PodReady).LastTransitionTime }
		unready := readyAt()
		edited := newPod("web", "u2", v1.RestartPolicyAlways, "a", "b")
		h.want(edited)
		after(10 * time.Second)
		h.want()
		after(10 * time.Second)
		if p := h.board.get("web"); p.DeletionTimestamp == nil || !strings.Contains(p.Status.Message, "the plugin says no") {
			t.Errorf("not wanted again: %+v", p.Status)
		}
		h.want(newPod("web", "u1", v1.RestartPolicyAlways, "a", "b"))
		after(10 * time.Second)
		for _, c := range h.board.get("web").Status.ContainerStatuses {
			if w := c.State.Waiting; w == nil || !strings.Contains(w.Message, "the plugin says no") {
				t.Errorf("wanted again: %+v", c)
			}
		}
		if got := readyAt(); !got.Equal(&unready) {
			t.Errorf("unready since %s, before since %s", got, unready)
		}
		h.want()
		rt.Fail("RemoveSandbox", nil)
		after(time.Minute)
		if h.board.get("web") != nil {
			t.Error("status is still there")
		}
	})
}

// TestLeavingOverARestart: the grace period of a pod that is being terminated is shown by the next podrun
// process as by the first.
func TestLeavingOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		rt.IgnoreTerm("a")
		h := start(t, rt)
		h.want(newPod("web", "u1", v1.RestartPolicyAlways, "a"))
		after(10 * time.Second)
		h.want()
		after(5 * time.Second)
		over := h.board.get("web").DeletionTimestamp
		h.stop()
		h = start(t, rt)
		defer h.stop()
		h.want()
		after(5 * time.Second)
		if got := h.board.get("web").DeletionTimestamp; got == nil || !got.Equal(over) {
			t.Errorf("to be gone at %s, before at %s", got, over)
		}
	})
}

// TestReplacedUnderItsUID: while what another manifest has left under the same UID is there, its manifest is what is
// saved, however often the new one changes: the next podrun process would take it for the new one's.
func TestReplacedUnderItsUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		rt.IgnoreTerm("a")
		h := start(t, rt)
		h.want(web())
		after(10 * time.Second)
		for i := range 3 {
			other := newPod("web", "u1", v1.RestartPolicyAlways, "b")
			other.Labels = map[string]string{"n": fmt.Sprint(i)}
			h.want(other)
			after(5 * time.Second)
			if p, err := rt.LoadPod("u1"); err != nil || p.Spec.Containers[0].Name != "a" {
				t.Fatalf("after edit %d, while a runs: %+v, %v", i, p, err)
			}
		}
		h.stop()
		h = start(t, rt)
		defer h.stop()
		h.want(newPod("web", "u1", v1.RestartPolicyAlways, "b"))
		after(time.Minute)
		h.wantLiving("u1-b-0")
	})
}

// complete wants only the job, which succeeds within ten seconds, and returns its status.
func (h *house) complete(job *v1.Pod) v1.PodStatus {
	h.t.Helper()
	h.want(job)
	after(10 * time.Second)
	p := h.board.get(job.Name)
	if p == nil || p.Status.Phase != v1.PodSucceeded {
		h.t.Fatalf("%s has not succeeded: %+v", job.Name, p)
	}
	return p.Status
}

// resultCalls is a Publisher that records which calls the runtime had received when a pod was published as Succeeded.
type resultCalls struct {
	reconcile.Publisher
	rt              *fake.Runtime
	reaped, removed []string
}

func (r *resultCalls) Publish(p *v1.Pod, seen time.Time, settled bool) error {
	if p.Status.Phase == v1.PodSucceeded && r.reaped == nil {
		r.reaped, r.removed = callsOf(r.rt, "ReapContainer "), callsOf(r.rt, "RemoveSandbox ")
	}
	return r.Publisher.Publish(p, seen, settled)
}

// TestResultIsRecordedFirst: a result is published once the exit is recorded, which a power cut cannot undo, and
// before the sandbox is removed, which may take long.
func TestResultIsRecordedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {Run: time.Second}})
		var published *resultCalls
		h := start(t, rt, func(o *reconcile.Options) {
			published = &resultCalls{Publisher: o.Publisher, rt: rt}
			o.Publisher = published
		})
		h.complete(newPod("job", "u1", v1.RestartPolicyNever, "a"))
		h.stop()
		if !slices.Equal(published.reaped, []string{"u1-a-0"}) || len(published.removed) > 0 {
			t.Errorf("when it was published, %q were recorded and sandboxes %q removed", published.reaped, published.removed)
		}
	})
}

// TestAddressesOfACompletedPod: the addresses that a completed pod had are shown by the next podrun process as
// by the first, although the pod has no sandbox any more.
func TestAddressesOfACompletedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {Run: time.Second}})
		h := start(t, rt)
		had := h.complete(newPod("job", "u1", v1.RestartPolicyNever, "a"))
		if had.PodIP == "" {
			t.Errorf("%+v", had)
		}
		h.stop()
		h = start(t, rt)
		defer h.stop()
		if got := h.complete(newPod("job", "u1", v1.RestartPolicyNever, "a")); got.PodIP != had.PodIP || !slices.Equal(got.PodIPs, had.PodIPs) {
			t.Errorf("addresses %q, before %q", got.PodIPs, had.PodIPs)
		}
	})
}

// TestConditionsOfAnotherRun: a job that is run again has no transition of its former run.
func TestConditionsOfAnotherRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {Run: time.Second}})
		job := newPod("job", "u1", v1.RestartPolicyNever, "a")
		h := start(t, rt)
		h.complete(job)
		h.stop()
		after(time.Minute)
		again := time.Now()
		h = start(t, rt, func(o *reconcile.Options) { o.Rerun = true })
		defer h.stop()
		status := h.complete(job)
		if status.StartTime.Time.Before(again) {
			t.Fatalf("%+v", status)
		}
		for _, c := range status.Conditions {
			if c.LastTransitionTime.Time.Before(again) {
				t.Errorf("%s since %s, but the run began at %s", c.Type, c.LastTransitionTime, again)
			}
		}
	})
}

// fullLogs fails to write logs.
type fullLogs struct{ noLogs }

func (fullLogs) Finish(context.Context, pod.Instance) error { return syscall.ENOSPC }

// TestLogThatCannotBeWritten: neither a restart nor a removal waits for disk space for the log.
func TestLogThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, forever(), func(o *reconcile.Options) { o.Logs = fullLogs{} })
		defer h.stop()
		h.want(web())
		h.wantLiving("u1-a-0")
		h.rt.Exit("u1-a-0", 1)
		after(time.Minute)
		h.wantLiving("u1-a-1")
		h.want()
		after(time.Minute)
		h.wantEmpty()
	})
	synctest.Test(t, func(t *testing.T) {
		h := start(t, forever(), func(o *reconcile.Options) { o.Logs, o.LogTries = fullLogs{}, 5 })
		defer h.stop()
		h.want(newPod("job", "u1", v1.RestartPolicyNever, "a"))
		h.rt.Exit("u1-a-0", 3)
		after(10 * time.Second)
		if reaped := callsOf(h.rt, "ReapContainer "); len(reaped) != 0 {
			t.Errorf("reaped at once: %s", reaped)
		}
		after(10 * time.Second)
		if reaped := callsOf(h.rt, "ReapContainer "); len(reaped) != 1 {
			t.Errorf("reaped: %s", reaped)
		}
	})
}
