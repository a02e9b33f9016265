package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// perform does the actions in order and stops at the first that fails, and after each start. A signal that is not sent
// in time keeps nothing else waiting: no action rests on another's. It reports whether anything may have changed, so
// that a look is due.
func (w *worker) perform(ctx context.Context, seen pod.Observed, actions []plan.Action) (look bool, err error) {
	var late error
	for _, a := range w.prompt(actions) {
		if _, quiet := a.(plan.EnsureImage); !quiet {
			look = true
			w.log.Info(a.String())
		}
		err := w.finish(ctx, func(ctx context.Context) error { return w.do(ctx, seen, a) })
		if errors.Is(err, errLate) {
			late = errors.Join(late, fmt.Errorf("%s: %w", a, err))
			continue
		}
		if err != nil {
			return true, errors.Join(late, fmt.Errorf("%s: %w", a, err))
		}
		if _, started := a.(plan.StartContainer); started {
			// It is noted down before anything else is done: it may be gone any moment.
			return true, late
		}
	}
	return look, late
}

// signalTimeout bounds a signal: one that a shim does not take at once it does not take at all.
const signalTimeout = 10 * time.Second

// errLate marks a signal that was not sent in time.
var errLate = errors.New("the container's shim does not answer")

// signalInTime sends a signal, within signalTimeout.
func (w *worker) signalInTime(ctx context.Context, id, signal string) error {
	limited, cancel := context.WithTimeout(ctx, signalTimeout)
	defer cancel()
	err := w.o.Containers.SignalContainer(limited, id, signal)
	w.late[id] = err != nil && ctx.Err() == nil && limited.Err() != nil
	if w.late[id] {
		err = fmt.Errorf("%w within %s: %w", errLate, signalTimeout, err)
	}
	return err
}

// prompt leaves the signals out to instances that did not take their last one in time, unless nothing else is to be done:
// the pod's other containers are served first.
func (w *worker) prompt(actions []plan.Action) []plan.Action {
	others := slices.DeleteFunc(slices.Clone(actions), func(a plan.Action) bool {
		switch a := a.(type) {
		case plan.Terminate:
			return w.late[a.ID]
		case plan.Kill:
			return w.late[a.ID]
		}
		return false
	})
	if len(others) == 0 {
		return actions
	}
	return others
}

// resizeInTime resizes an instance, within runtime.Timeout.
func (w *worker) resizeInTime(ctx context.Context, a plan.Resize) error {
	return inTime(ctx, func(ctx context.Context) error {
		return w.o.Containers.ResizeContainer(ctx, a.ID, w.pod, w.container(a.Container))
	})
}

// lastTime is for how long an action goes on when podrun is told to stop. What takes longer hangs, with the runtime
// or a shim of it; podrun may be killed at any instruction anyway.
const lastTime = 15 * time.Second

// finish brings an action that has begun to its end even when podrun is told to stop.
func (w *worker) finish(ctx context.Context, do func(context.Context) error) error {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastTime, cancel) })()
	return do(longer)
}

// do is the only switch from decision to effect.
func (w *worker) do(ctx context.Context, seen pod.Observed, a plan.Action) error {
	switch a := a.(type) {
	case plan.CreateSandbox:
		if a.Attempt > 0 {
			w.record("", normal, "SandboxChanged", "The pod's namespaces and network are made anew")
		}
		return w.failed("", plan.ReasonFailedSandbox, w.createSandbox(ctx, seen, a))
	case plan.EnsureImage:
		if err := w.ensureImage(ctx, a.Container); err != nil {
			return w.failed(a.Container, plan.ReasonErrImagePull, err)
		}
		return nil // an earlier failure is forgotten when the container starts, not when a pull begins
	case plan.StartContainer:
		return w.failed(a.Container, "CreateContainerError", w.startContainer(ctx, seen, a))
	case plan.RunPreStop:
		w.recordStop(a.Container, a.Why)
		return w.preStop(ctx, seen, a)
	case plan.Resize:
		return w.failed(plan.FailureResize+a.Container, reasonResize, w.resizeInTime(ctx, a))
	case plan.Allocate:
		w.allocate(a)
		return nil
	case plan.Renew:
		w.renewed[a.ID] = plan.RenewFailed(a.Container)
		w.note(seen, a.ID)
		return nil
	case plan.Terminate:
		if w.signalled[a.ID].Asked.IsZero() { // else it was told when its preStop hook began
			w.recordStop(a.Container, a.Why)
		}
		return w.signal(ctx, seen, a.ID, "")
	case plan.Kill:
		w.record(a.Container, normal, "Killing", fmt.Sprintf("Killing container %s: %s", a.Container, a.Why))
		return w.signal(ctx, seen, a.ID, "SIGKILL")
	case plan.Reap:
		return within(ctx, w.slots.clear, func(ctx context.Context) error { return w.reap(ctx, seen, a.ID) })
	case plan.RemoveContainer:
		delete(w.signalled, a.ID)
		delete(w.late, a.ID)
		delete(w.renewed, a.ID)
		w.hooks.end(a.ID)
		return within(ctx, w.slots.clear, func(ctx context.Context) error { return w.removeContainer(ctx, seen, a.ID) })
	case plan.RemoveSandbox:
		return w.removeSandbox(ctx, a)
	case plan.RemoveData:
		w.o.Logs.Forget(a.UID)
		return within(ctx, w.slots.clear, func(ctx context.Context) error { return w.removeData(ctx, a.UID) })
	default:
		return fmt.Errorf("no way to do %T", a)
	}
}

// failed keeps a failure for the planner, under the container's name. Only a runtime out of reach ends
// the round: then nothing else would succeed either.
func (w *worker) failed(name, reason string, err error) error {
	var start *runtime.StartError
	var told *runtime.ReasonError
	switch {
	case err == nil:
		delete(w.failures, name)
		return nil
	case errors.Is(err, runtime.ErrUnavailable):
		return err
	case errors.As(err, &start):
		// The instance exists and shows why it ended.
		w.record(name, warning, "Failed", "Error: "+err.Error())
		w.log.Warn("container did not start", "container", name, "why", err)
		delete(w.failures, name)
		return nil
	case errors.As(err, &told):
		reason = told.Reason
	}
	f := w.failures[name]
	if f.Reason != reason {
		f.Count = 0
	}
	w.failures[name] = plan.Failure{Reason: reason, Message: err.Error(), At: time.Now(), Count: f.Count + 1}
	if reason == reasonPulling {
		return nil // no failure: it is on its way
	}
	w.recordFailure(name, reason, err)
	w.log.Warn("failed; trying again later", "container", name, "reason", reason, "why", err)
	return nil
}

func (w *worker) createSandbox(ctx context.Context, seen pod.Observed, a plan.CreateSandbox) error {
	if !w.admission.admit(w.key, plan.Requests(w.pod)) {
		return nil // others were faster: it is judged again
	}
	if mine, _ := seen.Split(w.pod.UID); len(mine.Data) == 0 {
		again := w.pod.DeepCopy()
		metaAnnotation(again, manifest.AnnotationSeen, w.clock.wall().UTC().Format(time.RFC3339Nano))
		if w.shown == w.pod {
			w.shown = again // nobody need be shown this one apart
		}
		w.pod = again
	}
	return within(ctx, w.slots.make, func(ctx context.Context) error {
		// First the manifest: whatever is left of a pod, it can be told which one it was.
		if err := w.o.Data.SavePod(w.pod, w.o.Owner); err != nil {
			return err
		}
		return w.o.Sandboxes.CreateSandbox(ctx, w.pod, a.Attempt)
	})
}

// removeSandbox removes a sandbox. A lost one that cannot be removed keeps nothing waiting.
func (w *worker) removeSandbox(ctx context.Context, a plan.RemoveSandbox) error {
	err := within(ctx, w.slots.clear, func(ctx context.Context) error { return w.o.Sandboxes.RemoveSandbox(ctx, a.ID) })
	if a.Lost {
		return w.failed(plan.FailureSandbox+a.ID, reasonKillSandbox, err)
	}
	if err != nil {
		w.record("", warning, reasonKillSandbox, err.Error())
	}
	return err
}

// reasonKillSandbox is the kubelet's for a sandbox that cannot be removed.
const reasonKillSandbox = "FailedKillPod"

func (w *worker) startContainer(ctx context.Context, seen pod.Observed, a plan.StartContainer) error {
	c := w.container(a.Container)
	mine, _ := seen.Split(w.pod.UID)
	if c == nil || len(mine.Sandboxes) == 0 || w.images[a.Container] == nil {
		return fmt.Errorf("starting %s: not what was planned", a.Container)
	}
	image := w.images[a.Container].ready
	delete(w.images, a.Container)
	sandbox := mine.Sandboxes[0]
	in, err := w.inside(c, sandbox)
	if err != nil {
		return err
	}
	if in.Shown, err = w.imageVolumes(ctx, c); err != nil {
		return err
	}
	mounts, err := w.o.Volumes.Setup(ctx, in)
	if err != nil {
		return err
	}
	return within(ctx, w.slots.make, func(ctx context.Context) error {
		err := w.o.Containers.StartContainer(ctx, runtime.Start{
			Pod: w.pod, Container: c, Sandbox: sandbox, Attempt: a.Attempt, Backoff: a.Backoff, RestartGeneration: a.RestartGeneration, Image: image, Env: in.Env, Mounts: mounts,
		})
		if err == nil {
			w.record(c.Name, normal, "Created", "Created container "+c.Name)
			w.record(c.Name, normal, "Started", "Started container "+c.Name)
		}
		return err
	})
}

func (w *worker) container(name string) *v1.Container {
	for _, c := range pod.AllContainers(w.pod) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// farewellLog is how long the log of a pod that is going is written on; what is then left of it goes unread.
const farewellLog = 10 * time.Second

// finishLog writes what the instance has written into its log, for a while only if its pod is going.
func (w *worker) finishLog(ctx context.Context, c pod.Container) error {
	if w.pod == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, farewellLog)
		defer cancel()
	}
	return w.o.Logs.Finish(ctx, instance(w.key, c))
}

func (w *worker) reap(ctx context.Context, seen pod.Observed, id string) error {
	message := ""
	for _, c := range seen.Containers {
		if c.ID == id {
			if err := w.finishLog(ctx, c); err != nil {
				late := w.o.LogTries > 0 && w.trouble >= w.o.LogTries
				if w.pod != nil && !late || ctx.Err() != nil {
					return err
				}
				// What is to go must not wait for space, which it may be that takes it.
				w.log.Warn("a container's log is not written to its end", "container", c.Name, "why", err)
			}
			if w.logIsMessage(c) {
				message = w.o.Logs.End(ctx, instance(w.key, c))
			}
		}
	}
	delete(w.signalled, id)
	w.hooks.end(id)
	return w.o.Containers.ReapContainer(ctx, id, message)
}

// removeContainer removes an instance and, where a later one is there to tell of how the container was before,
// its log. The log goes first: once the instance is gone, nobody asks for it again.
func (w *worker) removeContainer(ctx context.Context, seen pod.Observed, id string) error {
	for _, c := range seen.Containers {
		later := func(d pod.Container) bool { return d.UID == c.UID && d.Name == c.Name && d.Attempt > c.Attempt }
		if c.ID == id && slices.ContainsFunc(seen.Containers, later) {
			if err := w.o.Logs.Drop(instance(w.key, c)); err != nil {
				return err
			}
		}
	}
	return w.o.Containers.RemoveContainer(ctx, id)
}

// logIsMessage reports that the end of its log is what a failed instance has to say about its end.
func (w *worker) logIsMessage(c pod.Container) bool {
	if w.pod == nil || c.UID != w.pod.UID || c.ExitCode == 0 || c.Message != "" {
		return false
	}
	spec := w.container(c.Name)
	return spec != nil && spec.TerminationMessagePolicy == v1.TerminationMessageFallbackToLogsOnError
}
