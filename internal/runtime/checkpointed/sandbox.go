package checkpointed

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/pod"
)

// undoTime bounds the removal of what a failed call left.
const undoTime = 30 * time.Second

// CreateSandbox implements runtime.Sandboxes. It saves the sandbox's ID in the checkpoint before
// anything is created. It first removes what an interrupted call left of the same attempt.
func (r *Runtime) CreateSandbox(ctx context.Context, p *v1.Pod, attempt int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c, err := r.o.Store.Get(p.UID)
	if err != nil {
		return fmt.Errorf("creating a sandbox of %s: %w", pod.KeyOf(p), err)
	}
	for _, s := range c.Sandboxes {
		if s.Attempt != attempt {
			continue
		}
		if s.Details.Complete && s.Boot == r.o.Boot() && r.o.Driver.SandboxReady(s) {
			return nil
		}
		if err := r.removeSandbox(ctx, c, s, nil); err != nil {
			// It stays in the checkpoint and is removed later. The new sandbox shares nothing with
			// it but the pod.
			r.o.Log.Warn("sandbox left by an interrupted start cannot be removed yet; it is removed later",
				"pod", c.Key().String(), "sandbox", s.ID, "err", err)
		}
	}
	details, err := r.o.Driver.PrepareSandbox(p)
	if err != nil {
		return err
	}
	s := pod.Sandbox{
		ID: r.o.NewID(ID{UID: p.UID, Attempt: attempt}), UID: p.UID, Attempt: attempt, Boot: r.o.Boot(),
		CreatedAt: r.o.now(), Details: details,
	}
	add := func(c *checkpoint.Checkpoint) { c.Sandboxes = append(c.Sandboxes, s) }
	if err := r.o.Store.Update(p.UID, add); err != nil {
		return err
	}
	made, err := r.o.Driver.CreateSandbox(ctx, p, s)
	if err != nil {
		// Undo it even if ctx has ended: an address that nobody uses must not stay allocated.
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		if left := r.removeSandbox(undo, c, s, nil); left != nil {
			r.o.Log.Warn("sandbox whose creation failed cannot be removed yet; it is removed later",
				"pod", c.Key().String(), "sandbox", s.ID, "err", left)
		}
		r.o.Log.Debug("sandbox was not created", "pod", c.Key().String(), "sandbox", s.ID, "err", err)
		return withoutID(err, s.ID)
	}
	made.Details.Complete = true
	return r.o.Store.Update(p.UID, func(c *checkpoint.Checkpoint) {
		if kept := c.Sandbox(s.ID); kept != nil {
			*kept = made
		}
	})
}

// YieldPorts implements runtime.Sandboxes.
func (r *Runtime) YieldPorts(ctx context.Context, id string) error {
	return r.o.Driver.YieldPorts(ctx, id)
}

// RemoveSandbox implements runtime.Sandboxes.
func (r *Runtime) RemoveSandbox(ctx context.Context, id string, ended func(context.Context) error) error {
	c := r.o.Store.OfSandbox(id)
	if c == nil {
		return nil
	}
	return r.removeSandbox(ctx, c, *c.Sandbox(id), ended)
}

func (r *Runtime) removeSandbox(
	ctx context.Context, c *checkpoint.Checkpoint, s pod.Sandbox, ended func(context.Context) error,
) error {
	if err := r.killVanished(ctx, c, func(i pod.Container) bool { return i.SandboxID == s.ID }); err != nil {
		return err
	}
	last := ended != nil && !slices.ContainsFunc(c.Sandboxes, func(o pod.Sandbox) bool { return o.ID != s.ID })
	if err := r.o.Driver.RemoveSandbox(ctx, c.Key(), s, last); err != nil {
		return err
	}
	if last {
		if err := ended(ctx); err != nil {
			return err
		}
	}
	return r.o.Store.Update(c.UID(), func(c *checkpoint.Checkpoint) { c.DropSandbox(s.ID) })
}
