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

// perform executes the actions in order. It stops at the first that fails, and after each start of
// a container. A signal that times out does not stop it, because no action depends on a signal. It
// reports whether something may have changed, so that an inspection is due.
func (w *worker) perform(ctx context.Context, seen pod.Observed, actions []plan.Action) (look bool, err error) {
	var late error
	for _, a := range w.instances.prompt(actions) {
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
			// Inspect and record the instance before anything else: it may exit at any moment.
			return true, late
		}
	}
	return look, late
}

// resizeInTime resizes an instance and waits at most runtime.Timeout.
func (w *worker) resizeInTime(ctx context.Context, a plan.Resize) error {
	return inTime(ctx, func(ctx context.Context) error {
		return w.o.Containers.ResizeContainer(ctx, a.ID, w.state.pod, container(w.state.pod, a.Container))
	})
}

// lastTime is how long a running action may continue after podrun is asked to stop. An action that
// takes longer hangs in the runtime or in a shim. Cancelling it is safe, because podrun may be
// killed at any instruction anyway.
const lastTime = 15 * time.Second

// finish completes an action that has begun even if ctx ends, within lastTime.
func (w *worker) finish(ctx context.Context, do func(context.Context) error) error {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastTime, cancel) })()
	return do(longer)
}

// do executes one action. It is the only place where a decision becomes an effect.
func (w *worker) do(ctx context.Context, seen pod.Observed, a plan.Action) error {
	switch a := a.(type) {
	case plan.CreateSandbox:
		if a.Attempt > 0 {
			w.recorder.record("", normal, "SandboxChanged", "The pod's namespaces and network are created again")
		}
		return w.failures.keep(w.state.pod, "", plan.ReasonFailedSandbox, w.createSandbox(ctx, seen, a))
	case plan.EnsureImage:
		if err := w.puller.ensure(ctx, w.state, a.Container); err != nil {
			return w.failures.keep(w.state.pod, a.Container, plan.ReasonErrImagePull, err)
		}
		return nil // an earlier failure is cleared by the start of the container, not by the start of a pull
	case plan.StartContainer:
		return w.failures.keep(w.state.pod, a.Container, "CreateContainerError", w.startContainer(ctx, seen, a))
	case plan.RunPreStop:
		w.recorder.recordStop(a.Container, a.Why)
		return w.hooks.preStop(ctx, w.state, seen, a)
	case plan.Resize:
		return w.failures.keep(w.state.pod, plan.FailureResize+a.Container, reasonResize, w.resizeInTime(ctx, a))
	case plan.Allocate:
		w.allocate(a)
		return nil
	case plan.Renew:
		w.instances.renewed[a.ID] = plan.RenewFailed(a.Container)
		w.notes.save(w.state, seen, a.ID)
		return nil
	case plan.Terminate:
		if w.instances.signalled[a.ID].Asked.IsZero() { // else recorded when its preStop hook started
			w.recorder.recordStop(a.Container, a.Why)
		}
		return w.terminator.signal(ctx, w.state, seen, a.ID, "")
	case plan.Kill:
		w.recorder.record(a.Container, normal, "Killing", fmt.Sprintf("Killing container %s: %s", a.Container, a.Why))
		return w.terminator.signal(ctx, w.state, seen, a.ID, "SIGKILL")
	case plan.Reap:
		return within(ctx, w.shared.slots.clear, func(ctx context.Context) error { return w.reap(ctx, seen, a.ID) })
	case plan.RemoveContainer:
		w.instances.remove(a.ID)
		w.hooks.results.hooks.cancel(a.ID)
		return within(ctx, w.shared.slots.clear, func(ctx context.Context) error { return w.removeContainer(ctx, seen, a.ID) })
	case plan.RemoveSandbox:
		return w.removeSandbox(ctx, a)
	case plan.RemoveData:
		w.o.Logs.Forget(a.UID)
		return within(ctx, w.shared.slots.clear, func(ctx context.Context) error { return w.removeData(ctx, a.UID) })
	default:
		return fmt.Errorf("unknown action %T", a)
	}
}

func (w *worker) createSandbox(ctx context.Context, seen pod.Observed, a plan.CreateSandbox) error {
	if !w.shared.admission.admit(w.key, plan.Requests(w.state.pod)) {
		return nil // other pods were admitted first: plan again
	}
	if mine, _ := seen.Split(w.state.pod.UID); len(mine.Data) == 0 {
		again := w.state.pod.DeepCopy()
		metaAnnotation(again, manifest.AnnotationSeen, w.instances.clock.wall().UTC().Format(time.RFC3339Nano))
		w.status.rename(w.state.pod, again)
		w.state.pod = again
	}
	return within(ctx, w.shared.slots.make, func(ctx context.Context) error {
		if err := w.manifests.create(w.state.pod); err != nil {
			return err
		}
		return w.o.Sandboxes.CreateSandbox(ctx, w.state.pod, a.Attempt)
	})
}

// removeSandbox removes a sandbox. A lost sandbox that cannot be removed does not end the sync: the
// pod has, or gets, another one that must not wait for it.
func (w *worker) removeSandbox(ctx context.Context, a plan.RemoveSandbox) error {
	err := within(ctx, w.shared.slots.clear, func(ctx context.Context) error { return w.o.Sandboxes.RemoveSandbox(ctx, a.ID) })
	if a.Lost {
		return w.failures.keep(w.state.pod, plan.FailureSandbox+a.ID, reasonKillSandbox, err)
	}
	if err != nil {
		w.recorder.record("", warning, reasonKillSandbox, err.Error())
	}
	return err
}

// reasonKillSandbox is the kubelet's reason for a sandbox that cannot be removed.
const reasonKillSandbox = "FailedKillPod"

func (w *worker) startContainer(ctx context.Context, seen pod.Observed, a plan.StartContainer) error {
	c := container(w.state.pod, a.Container)
	mine, _ := seen.Split(w.state.pod.UID)
	if c == nil || len(mine.Sandboxes) == 0 || w.puller.all[a.Container] == nil {
		return fmt.Errorf("starting %s: not what was planned", a.Container)
	}
	image := w.puller.all[a.Container].ready
	delete(w.puller.all, a.Container)
	sandbox := mine.Sandboxes[0]
	in, err := w.inside(c, sandbox)
	if err != nil {
		return err
	}
	if in.Shown, err = w.puller.mount(ctx, w.state, c); err != nil {
		return err
	}
	mounts, err := w.o.Volumes.Setup(ctx, in)
	if err != nil {
		return err
	}
	return within(ctx, w.shared.slots.make, func(ctx context.Context) error {
		err := w.o.Containers.StartContainer(ctx, runtime.Start{
			Pod:               w.state.pod,
			Container:         c,
			Sandbox:           sandbox,
			Attempt:           a.Attempt,
			Backoff:           a.Backoff,
			RestartGeneration: a.RestartGeneration,
			Image:             image,
			Env:               in.Env,
			Mounts:            mounts,
		})
		if err == nil {
			w.recorder.record(c.Name, normal, "Created", "Created container "+c.Name)
			w.recorder.record(c.Name, normal, "Started", "Started container "+c.Name)
		}
		return err
	})
}

// farewellLog is how long the rest of the log of a pod that is being terminated for good is
// written. Output that is left after that is lost.
const farewellLog = 10 * time.Second

// finishLog writes the rest of an instance's output to its log. If the pod is not desired any more,
// it stops after farewellLog.
func (w *worker) finishLog(ctx context.Context, c pod.Container) error {
	if w.state.pod == nil {
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
				late := w.o.LogTries > 0 && w.trouble.count >= w.o.LogTries
				if w.state.pod != nil && !late || ctx.Err() != nil {
					return err
				}
				// The removal must not wait for disk space, which the instance itself may be using.
				w.log.Warn("container log is incomplete", "container", c.Name, "err", err)
			}
			if w.logIsMessage(c) {
				message = w.o.Logs.End(ctx, instance(w.key, c))
			}
		}
	}
	delete(w.instances.signalled, id)
	w.hooks.results.hooks.cancel(id)
	return w.o.Containers.ReapContainer(ctx, id, message)
}

// removeContainer removes an instance. If a newer instance exists, which then is the container's
// previous state, it also removes the log. The log is removed first, because after the removal of
// the instance nothing triggers it again.
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

// logIsMessage reports that the end of the instance's log is its termination message
// (terminationMessagePolicy FallbackToLogsOnError).
func (w *worker) logIsMessage(c pod.Container) bool {
	if w.state.pod == nil || c.UID != w.state.pod.UID || c.ExitCode == 0 || c.Message != "" {
		return false
	}
	spec := container(w.state.pod, c.Name)
	return spec != nil && spec.TerminationMessagePolicy == v1.TerminationMessageFallbackToLogsOnError
}
