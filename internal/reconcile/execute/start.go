package execute

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile/admission"
	"podrun.io/podrun/internal/reconcile/pull"
	"podrun.io/podrun/internal/reconcile/record"
	"podrun.io/podrun/internal/reconcile/revision"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/sys/patience"
	"podrun.io/podrun/internal/timeline"
)

// starter creates the sandboxes of one pod, starts and resizes its containers and keeps its volumes
// up to date.
type starter struct {
	key        pod.Key
	slot       chan struct{} // limits the starts of all pods
	resources  *admission.Resources
	sandboxes  runtime.Sandboxes
	containers runtime.Containers
	volumes    Volumes
	puller     *pull.Puller
	manifests  *revision.Manifests
	recorder   *record.Recorder
	wall       func() time.Time
	began      timeline.Begins
	node       v1.ResourceList
	hostIP     func() string
}

// createSandbox creates a sandbox. If nothing of the revision is on the machine, this begins the
// revision's run: it changes s.Pod to say when.
func (t *starter) createSandbox(ctx context.Context, s *revision.State, seen pod.Observed, attempt int) error {
	if !t.resources.Admit(t.key, plan.Requests(s.Pod)) {
		return nil // other pods were admitted first: plan again
	}
	if mine, _ := seen.Split(s.Pod.UID); len(mine.Data) == 0 {
		s.Pod = s.Pod.DeepCopy()
		manifest.Annotate(s.Pod, manifest.AnnotationSeen, t.wall().UTC().Format(time.RFC3339Nano))
	}
	return admission.Within(ctx, t.slot, func(ctx context.Context) error {
		if err := t.manifests.Create(s.Pod); err != nil {
			return err
		}
		return t.sandboxes.CreateSandbox(ctx, s.Pod, attempt)
	})
}

// mount makes the volumes of the whole pod ready.
func (t *starter) mount(ctx context.Context, s revision.State, seen pod.Observed) error {
	mine, _ := seen.Split(s.Pod.UID)
	if len(mine.Sandboxes) == 0 {
		return errors.New("mounting volumes: not what was planned")
	}
	names := make([]string, 0, len(s.Pod.Spec.Volumes))
	for _, v := range s.Pod.Spec.Volumes {
		names = append(names, v.Name)
	}
	return whenMounted(ctx, names, func(ctx context.Context) error {
		return t.volumes.Mount(ctx, t.visible(s, mine.Sandboxes[0]))
	})
}

// whenMounted calls f, which readies volumes, and waits at most runtime.Timeout without progress: their file systems
// may not answer. If it takes long, that is reported.
func whenMounted(ctx context.Context, volumes []string, f func(context.Context) error) error {
	message := "MountVolume.SetUp has not ended yet for one of the volumes " + strings.Join(volumes, ", ")
	ctx, cancel := patience.With(ctx, runtime.Timeout)
	defer cancel()
	err := runtime.Call(ctx, pod.ReasonFailedMount, message, f)
	if err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		err = fmt.Errorf("not done within %s: %w", runtime.Timeout, err)
	}
	return err
}

// startContainer starts an instance of a container, if all that the container needs is there.
func (t *starter) startContainer(
	ctx context.Context, s revision.State, seen pod.Observed, a plan.StartContainer,
) error {
	c := pod.FindContainer(s.Pod, a.Container)
	mine, _ := seen.Split(s.Pod.UID)
	image, ready := t.puller.Use(a.Container)
	if c == nil || len(mine.Sandboxes) == 0 || !ready {
		return fmt.Errorf("starting %s: not what was planned", a.Container)
	}
	sandbox := mine.Sandboxes[0]
	in, err := t.inside(s, c, sandbox)
	if err != nil {
		return err
	}
	var volumeImages map[string]string
	if in.Shown, volumeImages, err = t.puller.Mount(ctx, s, c); err != nil {
		return err
	}
	var names []string
	for _, m := range c.VolumeMounts {
		names = append(names, m.Name)
	}
	var mounts []pod.Mount
	err = whenMounted(ctx, names, func(ctx context.Context) (err error) {
		mounts, err = t.volumes.Setup(ctx, in)
		return err
	})
	if err != nil {
		return err
	}
	cpus, err := t.resources.ChooseCPUs(ctx, sandbox.ID, s.Pod, c.Name, "")
	if err != nil {
		return err
	}
	return admission.Within(ctx, t.slot, func(ctx context.Context) error {
		err := t.containers.StartContainer(ctx, runtime.Start{
			Pod:               s.Pod,
			Container:         c,
			Sandbox:           sandbox,
			Attempt:           a.Attempt,
			Backoff:           a.Backoff,
			RestartGeneration: a.RestartGeneration,
			Image:             image,
			VolumeImages:      volumeImages,
			CPUs:              cpus,
			Env:               in.Env,
			Mounts:            mounts,
		})
		if err == nil {
			t.recorder.Record(c.Name, record.Normal, "Created", "Created container "+c.Name)
			t.recorder.Record(c.Name, record.Normal, "Started", "Started container "+c.Name)
		}
		return err
	})
}

// resize resizes an instance and waits at most runtime.Timeout.
func (t *starter) resize(ctx context.Context, p *v1.Pod, seen pod.Observed, a plan.Resize) error {
	return admission.InTime(ctx, func(ctx context.Context) error {
		cpus, err := t.resources.ChooseCPUs(ctx, seen.SandboxID(p.UID), p, a.Container, a.CPUs)
		if err != nil {
			return err
		}
		return t.containers.ResizeContainer(ctx, a.ID, p, pod.FindContainer(p, a.Container), cpus)
	})
}

// allocate gives the pod the CPU and memory of its manifest, unless other pods have reserved them
// since the planner decided that they are available. It saves the new size before an instance gets
// it: after a restart podrun would otherwise count the pod as smaller than it is. anew reports that
// the pod starts anew.
func (t *starter) allocate(s *revision.State, anew bool) {
	if s.Resized == nil || !anew && !t.resources.Grow(t.key, s.Pod, s.Resized) {
		return
	}
	s.Pod, s.Resized = s.Resized, nil
	s.Unsaved = !t.manifests.Update(*s)
	s.Stale = true // volumes may show the resources
	if !anew {
		t.recorder.ResizeStarted(s.Pod)
	}
}

// Refresh updates the volumes of a running pod to the current manifest and objects. It reports
// whether they are still stale.
func (e *Executor) Refresh(ctx context.Context, s revision.State, seen pod.Observed) (stale bool) {
	if !s.Stale || s.Pod == nil {
		return s.Stale
	}
	mine, _ := seen.Split(s.Pod.UID)
	if len(mine.Sandboxes) == 0 {
		return false // nothing runs yet; a start creates what it needs
	}
	t := e.starter
	err := t.volumes.Refresh(ctx, t.visible(s, mine.Sandboxes[0]))
	t.recorder.Outdated(err)
	return err != nil
}
