package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// executor executes the planner's actions for one pod.
type executor struct {
	starter    *starter
	remover    *remover
	terminator *terminator
	hooks      *hookRunner
	puller     *puller
	failures   *failures
	status     *statusPublisher
	log        *slog.Logger
}

// perform executes the actions in order. It stops at the first that fails, and after each start of
// a container. A signal that times out does not stop it, because no action depends on a signal. It
// returns the state that follows s, and whether something may have changed, so that an inspection
// is due.
func (e *executor) perform(
	ctx context.Context, s state, seen pod.Observed, actions []plan.Action,
) (next state, look bool, err error) {
	var late error
	for _, a := range e.terminator.instances.prompt(actions) {
		if _, quiet := a.(plan.EnsureImage); !quiet {
			look = true
			e.log.Info(a.String())
		}
		err := finish(ctx, func(ctx context.Context) error { return e.do(ctx, &s, seen, a) })
		if errors.Is(err, errLate) {
			late = errors.Join(late, fmt.Errorf("%s: %w", a, err))
			continue
		}
		if err != nil {
			return s, true, errors.Join(late, fmt.Errorf("%s: %w", a, err))
		}
		if _, started := a.(plan.StartContainer); started {
			// Inspect and record the instance before anything else: it may exit at any moment.
			return s, true, late
		}
	}
	return s, look, late
}

// lastTime is how long a running action may continue after podrun is asked to stop. An action that
// takes longer hangs in the runtime or in a shim. Cancelling it is safe, because podrun may be
// killed at any instruction anyway.
const lastTime = 15 * time.Second

// finish completes an action that has begun even if ctx ends, within lastTime.
func finish(ctx context.Context, do func(context.Context) error) error {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastTime, cancel) })()
	return do(longer)
}

// do executes one action. It is the only place where a decision becomes an effect. It changes s if
// the action starts a new run of the pod or allocates resources.
func (e *executor) do(ctx context.Context, s *state, seen pod.Observed, a plan.Action) error {
	record, recordStop := e.failures.recorder.record, e.failures.recorder.recordStop
	switch a := a.(type) {
	case plan.CreateSandbox:
		if a.Attempt > 0 {
			record("", normal, "SandboxChanged", "The pod's namespaces and network are created again")
		}
		before := s.pod
		err := e.starter.createSandbox(ctx, s, seen, a.Attempt)
		e.status.rename(before, s.pod)
		return e.failures.keep(s.pod, "", plan.ReasonFailedSandbox, err)
	case plan.EnsureImage:
		if err := e.puller.ensure(ctx, *s, a.Container); err != nil {
			return e.failures.keep(s.pod, a.Container, plan.ReasonErrImagePull, err)
		}
		return nil // an earlier failure is cleared by the start of the container, not by the start of a pull
	case plan.StartContainer:
		err := e.starter.startContainer(ctx, *s, seen, a)
		return e.failures.keep(s.pod, a.Container, "CreateContainerError", err)
	case plan.RunPreStop:
		recordStop(a.Container, a.Why)
		return e.hooks.preStop(ctx, *s, seen, a)
	case plan.Resize:
		err := e.starter.resize(ctx, s.pod, a)
		return e.failures.keep(s.pod, plan.FailureResize+a.Container, reasonResize, err)
	case plan.Allocate:
		e.starter.allocate(s, a.Anew)
		return nil
	case plan.Renew:
		e.terminator.instances.renewed[a.ID] = plan.RenewFailed(a.Container)
		e.terminator.notes.save(*s, seen, a.ID)
		return nil
	case plan.Terminate:
		if e.terminator.instances.signalled[a.ID].Asked.IsZero() { // else recorded when its preStop hook started
			recordStop(a.Container, a.Why)
		}
		return e.terminator.signal(ctx, *s, seen, a.ID, "")
	case plan.Kill:
		record(a.Container, normal, "Killing", fmt.Sprintf("Killing container %s: %s", a.Container, a.Why))
		return e.terminator.signal(ctx, *s, seen, a.ID, "SIGKILL")
	case plan.Reap:
		return e.remover.reap(ctx, s.pod, seen, a.ID)
	case plan.RemoveContainer:
		return e.remover.removeContainer(ctx, seen, a.ID)
	case plan.RemoveSandbox:
		return e.removeSandbox(ctx, s, a)
	case plan.RemoveData:
		return e.remover.removeData(ctx, a.UID)
	default:
		return fmt.Errorf("unknown action %T", a)
	}
}

// reasonKillSandbox is the kubelet's reason for a sandbox that cannot be removed.
const reasonKillSandbox = "FailedKillPod"

// removeSandbox removes a sandbox. A lost sandbox that cannot be removed does not end the sync: the
// pod has, or gets, another one that must not wait for it.
func (e *executor) removeSandbox(ctx context.Context, s *state, a plan.RemoveSandbox) error {
	err := e.remover.removeSandbox(ctx, a.ID)
	if a.Lost {
		return e.failures.keep(s.pod, plan.FailureSandbox+a.ID, reasonKillSandbox, err)
	}
	if err != nil {
		e.failures.recorder.record("", warning, reasonKillSandbox, err.Error())
	}
	return err
}
