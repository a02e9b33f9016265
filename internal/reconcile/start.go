package reconcile

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile/admission"
	"podrun.io/podrun/internal/runtime"
)

// starter creates the sandboxes of one pod, starts and resizes its containers and keeps its volumes
// up to date.
type starter struct {
	key        pod.Key
	shared     *shared
	sandboxes  runtime.Sandboxes
	containers runtime.Containers
	volumes    Volumes
	puller     *puller
	manifests  *manifests
	recorder   *recorder
	wall       func() time.Time
	node       v1.ResourceList
	hostIP     string
}

// createSandbox creates a sandbox. If nothing of the revision is on the machine, this begins the
// revision's run: it changes s.pod to say when.
func (t *starter) createSandbox(ctx context.Context, s *state, seen pod.Observed, attempt int) error {
	if !t.shared.resources.Admit(t.key, plan.Requests(s.pod)) {
		return nil // other pods were admitted first: plan again
	}
	if mine, _ := seen.Split(s.pod.UID); len(mine.Data) == 0 {
		s.pod = s.pod.DeepCopy()
		manifest.Annotate(s.pod, manifest.AnnotationSeen, t.wall().UTC().Format(time.RFC3339Nano))
	}
	return admission.Within(ctx, t.shared.slots.Create, func(ctx context.Context) error {
		if err := t.manifests.create(s.pod); err != nil {
			return err
		}
		return t.sandboxes.CreateSandbox(ctx, s.pod, attempt)
	})
}

// startContainer starts an instance of a container, if all that the container needs is there.
func (t *starter) startContainer(ctx context.Context, s state, seen pod.Observed, a plan.StartContainer) error {
	c := container(s.pod, a.Container)
	mine, _ := seen.Split(s.pod.UID)
	ready := t.puller.all[a.Container]
	if c == nil || len(mine.Sandboxes) == 0 || ready == nil {
		return fmt.Errorf("starting %s: not what was planned", a.Container)
	}
	delete(t.puller.all, a.Container)
	sandbox := mine.Sandboxes[0]
	in, err := t.inside(s, c, sandbox)
	if err != nil {
		return err
	}
	if in.Shown, err = t.puller.mount(ctx, s, c); err != nil {
		return err
	}
	mounts, err := t.volumes.Setup(ctx, in)
	if err != nil {
		return err
	}
	return admission.Within(ctx, t.shared.slots.Create, func(ctx context.Context) error {
		err := t.containers.StartContainer(ctx, runtime.Start{
			Pod:               s.pod,
			Container:         c,
			Sandbox:           sandbox,
			Attempt:           a.Attempt,
			Backoff:           a.Backoff,
			RestartGeneration: a.RestartGeneration,
			Image:             ready.ready,
			Env:               in.Env,
			Mounts:            mounts,
		})
		if err == nil {
			t.recorder.record(c.Name, normal, "Created", "Created container "+c.Name)
			t.recorder.record(c.Name, normal, "Started", "Started container "+c.Name)
		}
		return err
	})
}

// reasonResize is the kubelet's reason for a failed resize.
const reasonResize = "ResizeError"

// resize resizes an instance and waits at most runtime.Timeout.
func (t *starter) resize(ctx context.Context, p *v1.Pod, a plan.Resize) error {
	return admission.InTime(ctx, func(ctx context.Context) error {
		return t.containers.ResizeContainer(ctx, a.ID, p, container(p, a.Container))
	})
}

// allocate gives the pod the CPU and memory of its manifest, unless other pods have reserved them
// since the planner decided that they are available. It saves the new size before an instance gets
// it: after a restart podrun would otherwise count the pod as smaller than it is. anew reports that
// the pod starts anew.
func (t *starter) allocate(s *state, anew bool) {
	if s.resized == nil || !anew && !t.shared.resources.Grow(t.key, s.pod, s.resized) {
		return
	}
	s.pod, s.resized = s.resized, nil
	t.manifests.update(s.pod)
	s.stale = true // volumes may show the resources
	if !anew {
		t.recorder.resizing = true
		t.recorder.record("", normal, "ResizeStarted", "Pod resize started: "+pod.SizeOf(s.pod))
	}
}

// refresh updates the volumes of a running pod to the current manifest and objects. It reports
// whether they are still stale.
func (t *starter) refresh(ctx context.Context, s state, seen pod.Observed) (stale bool) {
	if !s.stale || s.pod == nil {
		return s.stale
	}
	mine, _ := seen.Split(s.pod.UID)
	if len(mine.Sandboxes) == 0 {
		return false // nothing runs yet; a start creates what it needs
	}
	err := t.volumes.Refresh(ctx, t.visible(s, mine.Sandboxes[0]))
	t.recorder.recordOutdated(err)
	return err != nil
}
