package execute

import (
	"context"
	"log/slog"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile/admission"
	"podrun.io/podrun/internal/reconcile/lifecycle"
	"podrun.io/podrun/internal/reconcile/record"
	"podrun.io/podrun/internal/reconcile/revision"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/sys/shortage"
)

// remover reaps and removes what is left of the instances, sandboxes and revisions of one pod.
type remover struct {
	key        pod.Key
	slot       chan struct{} // limits the removals of all pods
	waiting    chan struct{} // limits those of sandboxes
	sandboxes  runtime.Sandboxes
	containers runtime.Containers
	data       runtime.Data
	volumes    Volumes
	// keepVolumes is Options.KeepVolumes.
	keepVolumes bool
	logs        Logs
	logTries    int                            // Options.LogTries
	removing    func(key pod.Key, uid pod.UID) // Options.Removing
	syncs       *record.Syncs
	life        *lifecycle.Lifecycle
	log         *slog.Logger
}

// farewellLog is how long the rest of the log of a pod that is being terminated for good is
// written. Output that is left after that is lost.
const farewellLog = 10 * time.Second

// finishLog writes the rest of an instance's output to its log. If the pod is not desired any more,
// it stops after farewellLog.
func (r *remover) finishLog(ctx context.Context, p *v1.Pod, c pod.Container) error {
	if p == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, farewellLog)
		defer cancel()
	}
	return r.logs.Finish(ctx, c.Instance(r.key))
}

// reap records the exit of an instance of p, or of a pod that is not desired any more, after its
// log is complete.
func (r *remover) reap(ctx context.Context, p *v1.Pod, seen pod.Observed, id string) error {
	return admission.Within(ctx, r.slot, func(ctx context.Context) error {
		message := ""
		for _, c := range seen.Containers {
			if c.ID != id {
				continue
			}
			if err := r.finishLog(ctx, p, c); err != nil {
				late := r.logTries > 0 && r.syncs.Count() >= r.logTries
				if p != nil && !late || ctx.Err() != nil {
					return err
				}
				// The removal must not wait for disk space, which the instance itself may be using.
				r.log.Warn("container log is incomplete", "container", c.Name, "err", err)
			}
			if logIsMessage(p, c) {
				message = r.logs.LastOutput(ctx, c.Instance(r.key))
			}
		}
		r.life.Instances.Reaped(id)
		r.life.Hooks.Cancel(id)
		return r.containers.ReapContainer(ctx, id, message)
	})
}

// logIsMessage reports that the end of the log of p's instance c is its termination message
// (terminationMessagePolicy FallbackToLogsOnError).
func logIsMessage(p *v1.Pod, c pod.Container) bool {
	if p == nil || c.UID != p.UID || c.ExitCode == 0 || c.Message != "" {
		return false
	}
	spec := pod.FindContainer(p, c.Name)
	return spec != nil && spec.TerminationMessagePolicy == v1.TerminationMessageFallbackToLogsOnError
}

// removeContainer removes an instance. If a newer instance exists, which then is the container's
// previous state, it also removes the log. The log is removed first, because after the removal of
// the instance nothing triggers it again.
func (r *remover) removeContainer(ctx context.Context, seen pod.Observed, id string) error {
	r.life.Instances.Remove(id)
	r.life.Hooks.Cancel(id)
	return admission.Within(ctx, r.slot, func(ctx context.Context) error {
		for _, c := range seen.Containers {
			later := func(d pod.Container) bool { return d.UID == c.UID && d.Name == c.Name && d.Attempt > c.Attempt }
			if c.ID == id && slices.ContainsFunc(seen.Containers, later) {
				if err := r.logs.RemoveLogs(c.Instance(r.key)); err != nil {
					return err
				}
			}
		}
		return r.containers.RemoveContainer(ctx, id)
	})
}

// yieldLimit is how long the termination of a pod may wait for its host ports to be given to another pod.
const yieldLimit = 5 * time.Second

// yieldPorts gives the host ports of the sandbox of an instance to its successor, before the instance hears that it is
// to end. Without that connections may be lost; the instance ends nevertheless.
func (r *remover) yieldPorts(ctx context.Context, seen pod.Observed, id string) {
	for _, c := range seen.Containers {
		if c.ID != id {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, yieldLimit)
		defer cancel()
		if err := r.sandboxes.YieldPorts(ctx, c.SandboxID); err != nil {
			r.log.Warn("the successor of a pod does not have its host ports yet", "err", err)
		}
	}
}

// removeSandbox removes a sandbox. ended is not nil if the pod has completed.
func (r *remover) removeSandbox(ctx context.Context, id string, ended func(context.Context) error) error {
	return admission.Within(ctx, r.waiting, func(ctx context.Context) error {
		return r.sandboxes.RemoveSandbox(ctx, id, ended)
	})
}

// ended releases what a pod that has completed needs no more. Its last sandbox is there until this has succeeded, so
// that it is tried again, also by the next podrun.
func (r *remover) ended(ctx context.Context, uid pod.UID) error {
	if err := r.volumes.Ended(ctx, uid); err != nil || r.keepVolumes {
		return err
	}
	return r.removeEmptyDirs(ctx, []pod.UID{uid})
}

// removeData unmounts the volumes of a revision and then removes everything that was saved for it, but the result if
// that outlives it.
func (r *remover) removeData(ctx context.Context, s *revision.State, uid pod.UID) error {
	r.logs.Forget(uid)
	return admission.Within(ctx, r.slot, func(ctx context.Context) error {
		if err := r.volumes.Teardown(ctx, uid); err != nil {
			return err
		}
		if uid == s.Result {
			if err := r.saveResult(s, uid); err != nil {
				return err
			}
		}
		if r.removing != nil {
			r.removing(r.key, uid)
		}
		err := r.data.RemoveData(ctx, r.key, uid)
		if err == nil && uid == s.CutOff {
			s.CutOff = ""
		}
		return err
	})
}

// interrupt records that the shutdown of the machine interrupts the pod. The terminations of a pod that must not be
// recorded first do not wait for a disk that is full.
func (r *remover) interrupt(s *revision.State, must bool) error {
	err := r.data.Interrupt(s.Pod.UID)
	if err != nil && !must {
		r.log.Warn("that the shutdown interrupts a pod cannot be recorded: after a crash it may count as completed", "err", err)
		s.CutOff, err = s.Pod.UID, nil
	}
	return err
}

// saveResult stores the result of a revision. That it was cut off, which is no success, could not be recorded before if
// the disk was full.
func (r *remover) saveResult(s *revision.State, uid pod.UID) error {
	if uid == s.CutOff {
		if err := r.data.Interrupt(uid); err != nil {
			return err
		}
		s.CutOff = ""
	}
	return r.data.SaveResult(uid)
}

// withSpace performs an action. If that would remove a part of a pod that is not wanted, or record what is left of one
// that is evicted, and cannot because the disk is full, withSpace removes first what the pod has written to its own
// volumes, and tries again: that may be what fills the disk. Nothing of a pod is removed while anything of it lives.
func (e *Executor) withSpace(ctx context.Context, s *revision.State, seen pod.Observed, a plan.Action) error {
	err := e.do(ctx, s, seen, a)
	if !shortage.OfDisk(err) {
		return err
	}
	uids := e.expendable(s, seen, a)
	if len(uids) == 0 {
		return err
	}
	e.log.Warn("a disk is full: the emptyDir volumes of a pod that ends go first", "err", err)
	// Should podrun be killed, the pod must not go on without what its init containers have written there. If that
	// cannot be saved before, it is afterwards.
	save := func() {
		for _, c := range seen.Containers {
			e.life.Notes.Save(*s, seen, c.ID)
		}
	}
	save()
	if err := e.remover.removeEmptyDirs(ctx, uids); err != nil {
		return err
	}
	save()
	return e.do(ctx, s, seen, a)
}

// expendable returns the revisions that have no use any more for their emptyDir volumes, if a is a step towards the end
// of one: all of a pod that is not wanted, one that another replaces, and one that is evicted.
func (e *Executor) expendable(s *revision.State, seen pod.Observed, a plan.Action) []pod.UID {
	var id string
	var of pod.UID
	switch a := a.(type) {
	case plan.Reap:
		id = a.ID
	case plan.RemoveContainer:
		id = a.ID
	case plan.RemoveSandbox:
		id = a.ID
	case plan.RemoveData:
		of = a.UID
	default:
		return nil
	}
	if s.Pod == nil {
		return seen.Data
	}
	for _, c := range seen.Containers {
		if c.ID == id {
			of = c.UID
		}
	}
	for _, sandbox := range seen.Sandboxes {
		if sandbox.ID == id {
			of = sandbox.UID
		}
	}
	lives := func(c pod.Container) bool { return c.UID == of && c.State == pod.Running }
	if of == "" || of == s.Pod.UID && e.evicted() == "" || slices.ContainsFunc(seen.Containers, lives) {
		return nil
	}
	return []pod.UID{of}
}

// removeEmptyDirs removes the emptyDir volumes of revisions of which nothing lives.
func (r *remover) removeEmptyDirs(ctx context.Context, uids []pod.UID) error {
	return admission.Within(ctx, r.slot, func(ctx context.Context) error {
		for _, uid := range uids {
			if err := r.volumes.Teardown(ctx, uid); err != nil { // other volumes' may need space
				r.log.Warn("unmounting the volumes of a pod failed", "err", err)
			}
			if err := r.data.RemoveEmptyDirs(ctx, uid); err != nil {
				return err
			}
		}
		return nil
	})
}
