// Package execute turns the actions of a plan into effects on one pod: Executor.Perform is the only
// place where that happens. It creates, starts, resizes, reaps and removes; signals and hooks are
// package lifecycle, pulls are package pull. Executor.Refresh updates volumes, which needs no
// action. The package decides nothing: an action that fails is reported, and planned again.
//
// Begin reading with Executor.Perform.
package execute

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile/admission"
	"podrun.io/podrun/internal/reconcile/lifecycle"
	"podrun.io/podrun/internal/reconcile/pull"
	"podrun.io/podrun/internal/reconcile/record"
	"podrun.io/podrun/internal/reconcile/revision"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/trace"
	"podrun.io/podrun/internal/timeline"
)

// Volumes prepares what containers mount.
type Volumes interface {
	// Mount makes all volumes that containers of the pod use ready, before anything of it runs. A
	// *runtime.ReasonError says why one is not.
	Mount(ctx context.Context, in pod.Inside) error
	// Setup checks or creates the sources of in.Container's mounts and returns the mounts. A
	// *runtime.ReasonError says why a source is not available.
	Setup(ctx context.Context, in pod.Inside) ([]pod.Mount, error)
	// Files reads files from a pod's volumes. Files that do not exist are missing from the result.
	Files(p *v1.Pod, keys []pod.FileKey) (map[pod.FileKey]string, error)
	// Refresh updates the volumes of a running pod to its current manifest and objects (ConfigMaps
	// and Secrets).
	Refresh(ctx context.Context, in pod.Inside) error
	// Published reports whether CSI drivers have mounted volumes of the pod, and are not to unmount them.
	Published(uid pod.UID) bool
	// Ended releases what a pod that has ended needs no more of its volumes.
	Ended(ctx context.Context, uid pod.UID) error
	// Teardown unmounts what was mounted for a revision. A mount that is busy is an error.
	Teardown(ctx context.Context, uid pod.UID) error
}

// Logs converts the raw output of containers to their log files.
type Logs interface {
	// Follow starts following the log of a running instance. It is called for every running
	// instance at every sync and does not block. pid is the instance's first process, 0 if not
	// known yet.
	Follow(i pod.Instance, pid int)
	// Finish converts the rest of an instance's output. It is called after the instance has exited
	// and before its exit is reaped.
	Finish(ctx context.Context, i pod.Instance) error
	// LastOutput returns the end of an instance's log: at most 80 lines and 2048 bytes.
	LastOutput(ctx context.Context, i pod.Instance) string
	// RemoveLogs removes the logs of an instance that is being removed and of all earlier instances of
	// its container.
	RemoveLogs(last pod.Instance) error
	// Forget releases what is held for a revision whose files are about to be removed.
	Forget(uid pod.UID)
}

// Executor executes the planner's actions for one pod.
type Executor struct {
	starter  *starter
	remover  *remover
	life     *lifecycle.Lifecycle
	puller   *pull.Puller
	recorder *record.Recorder
	failures *record.Failures
	renamed  func(from, to *v1.Pod) // Options.Renamed
	evicted  func() string          // Options.Evicted
	creating *timeline.Open         // the last creation of a sandbox; nil if there was none
	log      *slog.Logger
}

// Options configure the Executor of one pod.
type Options struct {
	Key        pod.Key
	Sandboxes  runtime.Sandboxes
	Containers runtime.Containers
	Data       runtime.Data
	Volumes    Volumes
	// KeepVolumes: the emptyDir volumes of a pod that has completed stay until it is removed.
	KeepVolumes bool
	Logs        Logs
	// LogTries is the number of consecutive failed syncs after which an exited instance is reaped
	// although its log cannot be written. 0: no limit.
	LogTries int
	// Removing is called before the logs of a revision are removed. May be nil.
	Removing func(key pod.Key, uid pod.UID)
	// Evicted returns why the pod is evicted; "" if it is not.
	Evicted func() string
	// Slots and Resources are shared with the other pods.
	Slots     admission.Slots
	Resources *admission.Resources
	Lifecycle *lifecycle.Lifecycle
	Puller    *pull.Puller
	Manifests *revision.Manifests
	Recorder  *record.Recorder
	Failures  *record.Failures
	Syncs     *record.Syncs
	// Renamed is called after a sandbox has been created for the pod from. to is the manifest that
	// the pod has from then on: at the start of a run it is a copy of from with the time of the
	// start, otherwise it is from itself.
	Renamed func(from, to *v1.Pod)
	// Began records what starts take.
	Began timeline.Begins
	// Wall is the wall clock by which the start of a run is recorded.
	Wall func() time.Time
	// Node is the node's allocatable resources, HostIP returns its address.
	Node   v1.ResourceList
	HostIP func() string
	Log    *slog.Logger
}

// New returns the Executor of a pod.
func New(o Options) *Executor {
	return &Executor{
		starter: &starter{
			key:        o.Key,
			slot:       o.Slots.Create,
			resources:  o.Resources,
			sandboxes:  o.Sandboxes,
			containers: o.Containers,
			volumes:    o.Volumes,
			puller:     o.Puller,
			manifests:  o.Manifests,
			recorder:   o.Recorder,
			wall:       o.Wall,
			began:      o.Began,
			node:       o.Node,
			hostIP:     o.HostIP,
		},
		remover: &remover{
			key:        o.Key,
			slot:       o.Slots.Remove,
			waiting:    o.Slots.RemoveSandbox,
			sandboxes:  o.Sandboxes,
			containers: o.Containers,
			data:       o.Data,
			volumes:    o.Volumes, keepVolumes: o.KeepVolumes,
			logs:     o.Logs,
			logTries: o.LogTries,
			removing: o.Removing,
			syncs:    o.Syncs,
			life:     o.Lifecycle,
			log:      o.Log,
		},
		life:     o.Lifecycle,
		puller:   o.Puller,
		recorder: o.Recorder,
		failures: o.Failures,
		renamed:  o.Renamed,
		evicted:  o.Evicted,
		log:      o.Log,
	}
}

// Perform executes the actions in order. It stops at the first that fails, at a shutdown, and after each start of
// a container. A signal that times out does not stop it, because no action depends on a signal. It
// returns the state that follows s, and whether something may have changed, so that an inspection
// is due.
func (e *Executor) Perform(
	ctx context.Context, s revision.State, seen pod.Observed, actions []plan.Action,
) (next revision.State, inspect bool, err error) {
	var late error
	for _, a := range e.life.Instances.DeferLate(actions) {
		if errors.Is(context.Cause(ctx), ErrShutdown) {
			return s, true, late // what is to begin now is for another plan
		}
		if _, quiet := a.(plan.EnsureImage); !quiet {
			inspect = true
			e.log.Info(a.String())
		}
		err := finish(ctx, func(longer context.Context) error {
			return e.withSpace(runtime.WithCaller(longer, ctx, e.slow), &s, seen, a)
		})
		if errors.Is(err, lifecycle.ErrLate) {
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
	return s, inspect, late
}

// networkOf returns ctx for the creation of a sandbox, which is recorded as span: the part that connects the network is
// told apart. A failure there is the network's.
func networkOf(ctx context.Context, span *timeline.Open) context.Context {
	return trace.With(ctx, trace.Trace{
		Network: func() { span.Becomes(timeline.Network, "", time.Now()) },
		Connected: func(err error) {
			if err == nil {
				span.Becomes(timeline.Sandbox, "rest", time.Now())
			}
		},
	})
}

// slow records what an action waits for.
func (e *Executor) slow(reason, message string) {
	e.creating.WaitsFor(message)
	e.recorder.Record("", record.Warning, reason, message)
}

// lastTime is how long a running action may continue after podrun is asked to stop, or the pod's
// manifest has been removed. An action that takes longer hangs in the runtime or in a shim.
// Cancelling it is safe, because podrun may be killed at any instruction anyway.
const lastTime = 15 * time.Second

// ErrShutdown is the cause of a context that ends because the machine shuts down, and the pod with it. All of the pod
// has hardly more time than lastTime then, so a running action has less.
var ErrShutdown = errors.New("the machine shuts down")

// finish completes an action that has begun even if ctx ends, within lastTime.
func finish(ctx context.Context, do func(context.Context) error) error {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		left := lastTime
		if errors.Is(context.Cause(ctx), ErrShutdown) {
			left /= 10
		}
		time.AfterFunc(left, cancel)
	})()
	return do(longer)
}

// do executes one action. It is the only place where a decision becomes an effect. It changes s if
// the action starts a new run of the pod or allocates resources.
func (e *Executor) do(ctx context.Context, s *revision.State, seen pod.Observed, a plan.Action) error {
	event := e.recorder.Record
	switch a := a.(type) {
	case plan.CreateSandbox:
		if a.Attempt > 0 {
			event("", record.Normal, "SandboxChanged", "The pod's namespaces and network are created again")
		}
		before := s.Pod
		span := e.starter.began("", timeline.Sandbox, "")
		e.creating = span
		err := e.starter.createSandbox(networkOf(ctx, span), s, seen, a.Attempt)
		span.End(err)
		e.renamed(before, s.Pod)
		return e.failures.Keep(s.Pod, "", plan.ReasonFailedSandbox, err)
	case plan.EnsureImage:
		if err := e.puller.Ensure(ctx, *s, a.Container); err != nil {
			return e.failures.Keep(s.Pod, a.Container, plan.ReasonErrImagePull, err)
		}
		return nil // an earlier failure is cleared by the start of the container, not by the start of a pull
	case plan.StartContainer:
		if a.Mount {
			span := e.starter.began("", timeline.Volumes, "")
			err := e.starter.mount(ctx, *s, seen)
			span.End(err)
			if kept := e.failures.Keep(s.Pod, plan.FailureMount, pod.ReasonFailedMount, err); err != nil {
				return kept
			}
		}
		span := e.starter.began(a.Container, timeline.Start, "")
		err := e.starter.startContainer(ctx, *s, seen, a)
		span.End(err)
		return e.failures.Keep(s.Pod, a.Container, runtime.ReasonCreate, err)
	case plan.RunPreStop:
		e.stops(ctx, seen, plan.Terminate(a))
		return e.life.Hooks.PreStop(ctx, *s, seen, a)
	case plan.Resize:
		err := e.starter.resize(ctx, s.Pod, seen, a)
		return e.failures.Keep(s.Pod, plan.FailureResize+a.Container, record.ReasonResize, err)
	case plan.Allocate:
		e.starter.allocate(s, a.Anew)
		return nil
	case plan.RestartForResize:
		e.life.Instances.RestartForResize(a.ID, a.Container)
		e.life.Notes.Save(*s, seen, a.ID)
		return nil
	case plan.RestartOnRequest:
		event(a.Container, record.Normal, "RestartRequested", fmt.Sprintf("Restart of container %s was requested", a.Container))
		e.life.Instances.RestartOnRequest(a.ID)
		e.life.Notes.Save(*s, seen, a.ID)
		return nil
	case plan.Terminate:
		if e.life.Instances.Signalled()[a.ID].Asked.IsZero() { // else recorded when its preStop hook started
			e.stops(ctx, seen, a)
		}
		return e.life.Terminator.Signal(ctx, *s, seen, a, "")
	case plan.RenewGrace:
		e.remover.yieldPorts(ctx, seen, a.ID)
		e.life.Terminator.RenewGrace(*s, seen, a.ID)
		return nil
	case plan.Kill:
		event(a.Container, record.Normal, "Killing", fmt.Sprintf("Killing container %s: %s", a.Container, a.Why))
		return e.life.Terminator.Signal(ctx, *s, seen, plan.Terminate{ID: a.ID}, "SIGKILL")
	case plan.ReleaseVolumes:
		return e.remover.volumes.Ended(ctx, s.Pod.UID)
	case plan.Interrupt:
		return e.remover.interrupt(s, a.Must)
	case plan.Reap:
		return e.remover.reap(ctx, s.Pod, seen, a.ID)
	case plan.RemoveContainer:
		return e.remover.removeContainer(ctx, seen, a.ID)
	case plan.RemoveSandbox:
		return e.removeSandbox(ctx, s, a)
	case plan.RemoveData:
		return e.remover.removeData(ctx, s, a.UID)
	default:
		return fmt.Errorf("unknown action %T", a)
	}
}

// stops records that an instance is asked to end. Before, the pod's host ports are given away if it yields them.
func (e *Executor) stops(ctx context.Context, seen pod.Observed, a plan.Terminate) {
	e.recorder.Stop(a.Container, a.Why)
	if a.Yields {
		e.remover.yieldPorts(ctx, seen, a.ID)
	}
}

// removeSandbox removes a sandbox. A lost sandbox that cannot be removed does not end the sync: the
// pod has, or gets, another one that must not wait for it.
func (e *Executor) removeSandbox(ctx context.Context, s *revision.State, a plan.RemoveSandbox) error {
	var ended func(context.Context) error
	if a.Completed {
		ended = func(ctx context.Context) error { return e.remover.ended(ctx, s.Pod.UID) }
	}
	err := e.remover.removeSandbox(ctx, a.ID, ended)
	if a.Lost {
		return e.failures.Keep(s.Pod, plan.FailureSandbox+a.ID, pod.ReasonKillPod, err)
	}
	if err != nil {
		e.recorder.Record("", record.Warning, pod.ReasonKillPod, err.Error())
	}
	return err
}
