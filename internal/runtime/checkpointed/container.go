package checkpointed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// Exit code and reason of an instance whose process could not be started, as in the CRI.
const (
	exitStartError   = 128
	reasonStartError = "StartError"
)

// StartContainer implements runtime.Containers. It does nothing if an instance of the same attempt
// runs, and first removes instances whose start was interrupted.
func (r *Runtime) StartContainer(ctx context.Context, s runtime.Start) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c, err := r.o.Store.Get(s.Pod.UID)
	if err != nil {
		return fmt.Errorf("starting %s: %w", s.Container.Name, err)
	}
	running, err := r.makeWay(ctx, c, s)
	if running || err != nil {
		return err
	}
	instance := r.newInstance(s)
	s.ID = instance.ID
	add := func(c *checkpoint.Checkpoint) {
		c.Instances = slices.DeleteFunc(c.Instances, func(i pod.Container) bool {
			return i.Name == instance.Name && i.Attempt == instance.Attempt
		})
		c.Instances = append(c.Instances, instance)
	}
	if err := r.o.Store.Update(s.Pod.UID, add); err != nil {
		return err
	}
	s.Running = resourcesOf(c)
	delete(s.Running, s.Container.Name) // it is replaced
	s.Oversized = func() error {
		return r.o.Store.Update(s.Pod.UID, func(c *checkpoint.Checkpoint) {
			if kept := c.Instance(instance.ID); kept != nil {
				kept.Resizing = ";" + kept.Resources
			}
		})
	}
	s.Started = func(user string) error {
		return r.o.Store.Update(s.Pod.UID, func(c *checkpoint.Checkpoint) {
			if kept := c.Instance(instance.ID); kept != nil {
				kept.State, kept.StartedAt, kept.User = pod.Running, r.o.now(), user
				prune(c, instance)
			}
		})
	}
	err = r.o.Driver.StartContainer(ctx, s)
	if err == nil {
		return nil
	}
	r.o.Log.Debug("container was not started", "pod", c.Key().String(), "container", s.ID, "err", err)
	return r.notStarted(ctx, s, withoutID(err, s.ID))
}

// newInstance returns the record of the instance that a start creates.
func (r *Runtime) newInstance(s runtime.Start) pod.Container {
	p, c := s.Pod, s.Container
	i := pod.Container{
		ID:   r.o.NewID(ID{UID: p.UID, Container: c.Name, Attempt: s.Attempt}),
		Name: c.Name, UID: p.UID, SandboxID: s.Sandbox.ID,
		Attempt: s.Attempt, Backoff: s.Backoff, RestartGeneration: s.RestartGeneration, Boot: r.o.Boot(),
		State: pod.Created, StartedAt: r.o.now(),
		Process: pod.Process{
			Resources: pod.ResourcesOf(p, c), CPUs: s.CPUs, VolumeImages: pod.VolumeImagesOf(s.VolumeImages),
		},
		Image: c.Image, ImageID: s.Image.ID, Termination: pod.Termination{StopSignal: s.Image.StopSignal},
		Sidecar: pod.SidecarOrder(p, c.Name), Notes: pod.NotesAtStart(c),
	}
	if grace := p.Spec.TerminationGracePeriodSeconds; grace != nil {
		i.Grace = pod.Seconds(*grace)
	}
	if hooks := c.Lifecycle; hooks != nil {
		i.PreStop = hooks.PreStop != nil
		if hooks.StopSignal != nil {
			i.StopSignal = string(*hooks.StopSignal)
		}
	}
	return i
}

// makeWay removes what interrupted starts of the container left, so that no other instance of the
// attempt exists. It reports whether such an instance already runs, and returns an error if the
// attempt has already run.
func (r *Runtime) makeWay(ctx context.Context, c *checkpoint.Checkpoint, s runtime.Start) (running bool, err error) {
	var before []pod.Container
	for _, i := range c.Instances {
		if i.Name == s.Container.Name && (i.Attempt == s.Attempt || i.State == pod.Created) {
			before = append(before, i)
		}
	}
	if err := r.killVanished(ctx, c, func(i pod.Container) bool { return i.Name == s.Container.Name }); err != nil {
		return false, fmt.Errorf("ending what is left of a former instance of %s: %w", s.Container.Name, err)
	}
	if len(before) == 0 {
		return false, nil
	}
	found, err := r.o.Driver.InspectContainers(ctx, c.Key(), idsOf([]*checkpoint.Checkpoint{c}))
	if err != nil {
		return false, err
	}
	for _, i := range before {
		seen, there := withID(found, i.ID)
		now, shown, _ := r.instance(i, seen, there)
		switch {
		case !shown:
			continue // only the checkpoint has it
		case now.State == pod.Running:
			return true, nil
		case now.State != pod.Created:
			return false, fmt.Errorf("starting %s: attempt %d has run already", s.Container.Name, s.Attempt)
		}
		if err := r.removeInstance(ctx, c, i, now.State); err != nil {
			return false, fmt.Errorf("removing what a start of %s left: %w", s.Container.Name, err)
		}
	}
	return false, nil
}

// withID returns the instance with the given ID among all.
func withID(all []pod.Container, id string) (pod.Container, bool) {
	i := slices.IndexFunc(all, func(c pod.Container) bool { return c.ID == id })
	if i < 0 {
		return pod.Container{}, false
	}
	return all[i], true
}

// killVanished kills what may still run of the instances that it is asked for, whose process was started
// and which the engine does not have any more: another program may have removed an instance while its
// process was being started.
func (r *Runtime) killVanished(ctx context.Context, c *checkpoint.Checkpoint, which func(pod.Container) bool) error {
	var started []pod.Container
	for _, i := range c.Instances {
		if i.State == pod.Running && i.Boot == r.o.Boot() && which(i) {
			started = append(started, i)
		}
	}
	if len(started) == 0 {
		return nil
	}
	found, err := r.o.Driver.InspectContainers(ctx, c.Key(), idsOf([]*checkpoint.Checkpoint{c}))
	if err != nil {
		return err
	}
	for _, i := range started {
		if _, there := withID(found, i.ID); there {
			continue
		}
		if err := r.o.Driver.KillRemains(ctx, c.Key(), i); err != nil {
			return err
		}
	}
	return nil
}

// mostKept is the maximum number of instances of one container that prune leaves in a checkpoint.
// The engine never has that many at a time; only instances that another program removes again and
// again could exceed it.
const mostKept = 8

// prune removes earlier instances of the container of last from the checkpoint, once they are
// reaped or if there are more than mostKept.
func prune(c *checkpoint.Checkpoint, last pod.Container) {
	mine := 0
	for _, i := range c.Instances {
		if i.Name == last.Name {
			mine++
		}
	}
	c.Instances = slices.DeleteFunc(c.Instances, func(i pod.Container) bool {
		earlier := i.Name == last.Name && i.Attempt < last.Attempt
		if !earlier || !i.Reaped && mine <= mostKept {
			return false
		}
		mine--
		return true
	})
}

// notStarted records the result of a failed start: an exit, an intent that stays until it is
// removed, or no instance.
func (r *Runtime) notStarted(ctx context.Context, s runtime.Start, err error) error {
	var kept error
	started := (*runtime.StartError)(nil)
	switch {
	case errors.As(err, &started) && started.Unknown:
		kept = r.recordExit(s.Pod.UID, s.ID, pod.Exit{
			FinishedAt: r.o.now(), ExitCode: exitLost, Reason: pod.ReasonLost,
			Message: withoutID(started, s.ID).Error(),
		})
	case errors.As(err, &started):
		kept = r.recordExit(s.Pod.UID, s.ID, pod.Exit{
			FinishedAt: r.o.now(), ExitCode: exitStartError, Reason: reasonStartError,
			Message: withoutID(started, s.ID).Error(),
		})
	case errors.Is(err, runtime.ErrCutOff) || errors.Is(err, runtime.ErrUnavailable) || ctx.Err() != nil:
		return err // the instance may exist: its record stays as Created until the instance is removed
	default:
		kept = r.o.Store.Update(s.Pod.UID, func(c *checkpoint.Checkpoint) { c.DropInstance(s.ID) })
	}
	if kept != nil {
		return errors.Join(fmt.Errorf("starting %s: %w", s.Container.Name, kept), errors.New(err.Error()))
	}
	return err
}

// recordExit saves the exit of an instance in its checkpoint. It does not overwrite an exit that is
// already recorded.
func (r *Runtime) recordExit(uid pod.UID, id string, e pod.Exit) error {
	return r.o.Store.Update(uid, func(c *checkpoint.Checkpoint) {
		i := c.Instance(id)
		if i == nil || i.State == pod.Exited {
			return
		}
		e.Message = strings.ToValidUTF8(e.Message, "�")
		i.State, i.Exit = pod.Exited, e
	})
}

// find returns the checkpoint that names the instance and the instance in it; nil if there is none.
func (r *Runtime) find(id string) (*checkpoint.Checkpoint, *pod.Container) {
	c := r.o.Store.OfInstance(id)
	if c == nil {
		return nil, nil
	}
	return c, c.Instance(id)
}

// ResizeContainer implements runtime.Containers.
func (r *Runtime) ResizeContainer(
	ctx context.Context, id string, p *v1.Pod, spec *v1.Container, cpus string,
) error {
	c, kept := r.find(id)
	to := pod.ResourcesOf(p, spec)
	if kept != nil && kept.State == pod.Running {
		// Not known from here on, also to a later process: it may be changed, and podrun end before that is recorded.
		meanwhile := kept.Process
		if cpus != "" && kept.CPUs != cpus {
			meanwhile.CPUs = pod.Unchosen
		}
		if !slices.Contains(strings.Split(kept.Resources+kept.Resizing, ";"), to) {
			meanwhile.Resizing += ";" + to
		}
		if meanwhile != kept.Process {
			err := r.o.Store.Update(c.UID(), func(c *checkpoint.Checkpoint) {
				if i := c.Instance(id); i != nil {
					i.Process = meanwhile
				}
			})
			if err != nil {
				return err
			}
		}
	}
	resize := runtime.Resize{ID: id, Pod: p, Container: spec, CPUs: cpus, Running: resourcesOf(c)}
	if err := r.o.Driver.ResizeContainer(ctx, resize); err != nil {
		return err
	}
	c, kept = r.find(id)
	if kept == nil || kept.State != pod.Running {
		return nil
	}
	return r.o.Store.Update(c.UID(), func(c *checkpoint.Checkpoint) {
		if i := c.Instance(id); i != nil {
			i.Resources, i.Resizing = to, ""
			if cpus != "" {
				i.CPUs = cpus
			}
		}
	})
}

// resourcesOf returns what the instances run with that are not recorded as exited, by container, as in
// runtime.Resize.
func resourcesOf(c *checkpoint.Checkpoint) map[string]string {
	out := map[string]string{}
	if c == nil {
		return out
	}
	for _, i := range c.Instances {
		if i.State != pod.Exited {
			out[i.Name] = i.Resources + i.Resizing
		}
	}
	return out
}

// SignalContainer implements runtime.Containers.
func (r *Runtime) SignalContainer(ctx context.Context, id, signal string) error {
	if signal == "" {
		_, kept := r.find(id)
		if kept != nil {
			signal = kept.StopSignal
		}
		signal = cmp.Or(signal, "SIGTERM")
	}
	return r.o.Driver.SignalContainer(ctx, id, signal)
}

// ReapContainer implements runtime.Containers. It records the exit before the engine forgets it: if
// it is interrupted in between, it is simply repeated.
func (r *Runtime) ReapContainer(ctx context.Context, id, message string) error {
	c, kept := r.find(id)
	if kept == nil || kept.State == pod.Exited {
		return r.o.Driver.ReapContainer(ctx, id)
	}
	found, err := r.o.Driver.InspectContainers(ctx, c.Key(), []string{id})
	if err != nil {
		return err
	}
	seen, there := withID(found, id)
	if !there {
		return nil // another program has removed it
	}
	now, _, _ := r.instance(*kept, seen, true)
	if now.State != pod.Exited {
		return fmt.Errorf("instance %s has not exited: it is %s", id, now.State)
	}
	if seen.Reaped && now.Boot == r.o.Boot() {
		// Its exit was not observed, so its process may still run, and would run beside its
		// replacement.
		if err := r.o.Driver.KillRemains(ctx, c.Key(), *kept); err != nil {
			return err
		}
	}
	e := now.Exit
	e.Message, e.FinishedAt = cmp.Or(e.Message, message), e.FinishedAt.UTC().Round(0)
	if err := r.recordExit(c.UID(), id, e); err != nil {
		return err
	}
	r.lostSince.Delete(id)
	return r.o.Driver.ReapContainer(ctx, id)
}

// RemoveContainer implements runtime.Containers.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	c, kept := r.find(id)
	if kept == nil {
		return r.o.Driver.RemoveContainer(ctx, pod.Container{ID: id}, time.Time{})
	}
	state := kept.State
	if state == pod.Running {
		found, err := r.o.Driver.InspectContainers(ctx, c.Key(), []string{id})
		if err != nil {
			return err
		}
		if seen, there := withID(found, id); there {
			now, _, _ := r.instance(*kept, seen, true)
			state = now.State
		}
	}
	return r.removeInstance(ctx, c, *kept, state)
}

// removeInstance removes an instance from the engine, and from the checkpoint unless it is the
// newest one of its container that ran. If its process never ran although the checkpoint records it
// as Running, it first records it as Created: without the instance in the engine, the process would
// otherwise appear to have run.
func (r *Runtime) removeInstance(
	ctx context.Context, c *checkpoint.Checkpoint, i pod.Container, state pod.State,
) error {
	var begun time.Time
	if state == pod.Created {
		begun = i.StartedAt
		err := r.o.Store.Update(c.UID(), func(c *checkpoint.Checkpoint) {
			if kept := c.Instance(i.ID); kept != nil {
				kept.State = pod.Created
			}
		})
		if err != nil {
			return err
		}
	}
	if err := r.o.Driver.RemoveContainer(ctx, i, begun); err != nil {
		return err
	}
	return r.o.Store.Update(c.UID(), func(c *checkpoint.Checkpoint) {
		newest := slices.ContainsFunc(c.Newest(), func(n pod.Container) bool { return n.ID == i.ID })
		if kept := c.Instance(i.ID); kept != nil && newest && kept.State == pod.Exited {
			kept.Reaped = true
			return
		}
		c.DropInstance(i.ID)
	})
}
