package fake

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// killed is the exit code of a process that SIGKILL ended, as a shell counts it.
const (
	killed     = 137
	terminated = 143
)

// StartContainer makes an instance that behaves as its image's Script says.
func (r *Runtime) StartContainer(ctx context.Context, s runtime.Start) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := fmt.Sprintf("%s-%s-%d", s.Pod.UID, s.Container.Name, s.Attempt)
	if err := r.enter(ctx, "StartContainer", id); err != nil {
		return err
	}
	if c := r.containers[id]; c != nil {
		if c.State == pod.Running {
			return nil
		}
		if c.State == pod.Exited {
			return fmt.Errorf("starting %s: has run already", id)
		}
		delete(r.containers, id)
	}
	if _, ok := r.images[s.Image.Name]; !ok {
		return fmt.Errorf("starting %s: image %s: %w", id, s.Image.Name, runtime.ErrNotFound)
	}
	c := &container{key: pod.KeyOf(s.Pod), Container: pod.Container{
		ID: id, Name: s.Container.Name, UID: s.Pod.UID, SandboxID: s.Sandbox.ID, Attempt: s.Attempt, Backoff: s.Backoff, Round: s.Round,
		Boot: r.boot, State: pod.Running, PID: 1000 + len(r.calls), StartedAt: r.wall(), Image: s.Container.Image, ImageID: s.Image.ID,
		Resources: pod.ResourcesOf(s.Pod, s.Container), Sidecar: pod.SidecarOrder(s.Pod, s.Container.Name), PreStop: s.Container.Lifecycle != nil && s.Container.Lifecycle.PreStop != nil,
		Notes: pod.NotesAtStart(s.Container),
	}}
	if hooks := s.Container.Lifecycle; hooks != nil && hooks.StopSignal != nil {
		c.StopSignal = string(*hooks.StopSignal)
	}
	if s.Container.Stdin {
		c.input = &input{once: s.Container.StdinOnce && !s.Container.TTY}
	}
	if g := s.Pod.Spec.TerminationGracePeriodSeconds; g != nil {
		c.Grace = time.Duration(*g) * time.Second
	}
	r.containers[id] = c
	r.ring(c.key)
	script := r.scripts[s.Container.Image]
	if script.StartError != nil {
		r.end(c, 128, "StartError", script.StartError.Error())
		return &runtime.StartError{Err: script.StartError}
	}
	if script.Run > 0 {
		time.AfterFunc(script.Run, func() { r.Exit(id, script.Exit) })
	}
	return nil
}

// end makes a running instance exited. The caller holds the lock.
func (r *Runtime) end(c *container, code int, reason, message string) {
	if c.State != pod.Running {
		return
	}
	if reason == "" {
		reason = "Completed"
		if code != 0 {
			reason = "Error"
		}
	}
	c.State, c.PID, c.ExitCode, c.Reason, c.Message, c.FinishedAt = pod.Exited, 0, code, reason, message, r.wall()
	r.ring(c.key)
}

// ResizeContainer notes the resources down.
func (r *Runtime) ResizeContainer(ctx context.Context, id string, p *v1.Pod, spec *v1.Container) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "ResizeContainer", id); err != nil {
		return err
	}
	if c := r.containers[id]; c != nil && c.State == pod.Running {
		c.Resources = pod.ResourcesOf(p, spec)
		r.ring(c.key)
	}
	return nil
}

// SignalContainer ends the instance, unless it ignores the signal.
func (r *Runtime) SignalContainer(ctx context.Context, id, signal string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "SignalContainer", id+" "+signal); err != nil {
		return err
	}
	c := r.containers[id]
	switch {
	case c == nil:
	case signal == "SIGKILL" || signal == "KILL":
		r.end(c, killed, "", "")
	case !r.ignoreTerm[c.Name]:
		r.end(c, terminated, "", "")
	}
	return nil
}

// ReapContainer marks the exit as recorded.
func (r *Runtime) ReapContainer(ctx context.Context, id, message string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "ReapContainer", id); err != nil {
		return err
	}
	if c := r.containers[id]; c != nil {
		if c.State == pod.Running {
			return fmt.Errorf("reaping %s: it runs", id)
		}
		if !c.Reaped && c.Message == "" {
			c.Message = message
		}
		c.Reaped = true
	}
	return nil
}

// RemoveContainer forgets an instance.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "RemoveContainer", id); err != nil {
		return err
	}
	c := r.containers[id]
	if c == nil {
		return nil
	}
	if c.State == pod.Running {
		return fmt.Errorf("removing %s: it runs", id)
	}
	delete(r.containers, id)
	r.ring(c.key)
	return nil
}

// Resolve finds an image that AddImage or Pull put there.
func (r *Runtime) Resolve(ctx context.Context, ref string) (pod.Image, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "Resolve", ref); err != nil {
		return pod.Image{}, err
	}
	i, ok := r.images[ref]
	if !ok {
		return i, fmt.Errorf("image %s: %w", ref, runtime.ErrNotFound)
	}
	return i, nil
}

// Pull puts the image there.
func (r *Runtime) Pull(ctx context.Context, ref string, _ ...[]byte) (pod.Image, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "Pull", ref); err != nil {
		return pod.Image{}, err
	}
	for r.slow[ref] != nil {
		slow := r.slow[ref]
		r.mu.Unlock()
		select {
		case <-slow.changed:
		case <-ctx.Done():
		}
		r.mu.Lock()
		if err := ctx.Err(); err != nil {
			return pod.Image{}, err
		}
	}
	r.images[ref] = pod.Image{Name: ref, ID: ref + "@sha256:fake"}
	return r.images[ref], nil
}

// slowPull is a pull that goes on until it is told otherwise.
type slowPull struct {
	progress pod.Progress
	changed  chan struct{}
}

// SlowPull makes pulls of ref stand at p; nil lets them end.
func (r *Runtime) SlowPull(ref string, p *pod.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before := r.slow[ref]; before != nil {
		close(before.changed)
	}
	delete(r.slow, ref)
	if p != nil {
		r.slow[ref] = &slowPull{progress: *p, changed: make(chan struct{})}
	}
}

// Pulling tells where SlowPull made a pull stand.
func (r *Runtime) Pulling(ref string) (pod.Progress, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slow := r.slow[ref]; slow != nil {
		return slow.progress, true
	}
	return pod.Progress{}, false
}

// Show says where the files would be.
func (r *Runtime) Show(ctx context.Context, image pod.Image, uid pod.UID, volume string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "Show", image.Name); err != nil {
		return "", err
	}
	if _, ok := r.images[image.Name]; !ok {
		return "", fmt.Errorf("image %s: %w", image.Name, runtime.ErrNotFound)
	}
	return "/fake/" + string(uid) + "/" + volume, nil
}

// AddImage puts an image there and says how its process behaves.
func (r *Runtime) AddImage(ref string, s Script) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.images[ref] = pod.Image{Name: ref, ID: ref + "@sha256:fake"}
	r.scripts[ref] = s
}

// IgnoreTerm makes the named container deaf to all signals but SIGKILL.
func (r *Runtime) IgnoreTerm(container string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ignoreTerm[container] = true
}

// Exit ends a running instance with the given code, as if by itself.
func (r *Runtime) Exit(id string, code int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		r.end(c, code, "", "")
	}
}

// Vanish removes an instance without a trace, as `ctr` behind podrun's back does.
func (r *Runtime) Vanish(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		delete(r.containers, id)
		r.ring(c.key)
	}
}

// LoseSandbox makes a sandbox no longer whole.
func (r *Runtime) LoseSandbox(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[id]; s != nil {
		s.Ready = false
		r.ring(s.key)
	}
}

// Reboot ends everything as a power cut does: no exit is known, and sandboxes are gone.
func (r *Runtime) Reboot(boot string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.boot = boot
	clear(r.sandboxes)
	for _, c := range r.containers {
		if c.State == pod.Running {
			c.State, c.PID, c.ExitCode, c.Reason = pod.Exited, 0, 255, pod.ReasonLost
		}
	}
	for ch := range r.rings {
		select {
		case ch <- runtime.Ring{All: true}:
		default:
		}
	}
}

// Exec runs what OnExec was given; without it, it succeeds at once in a running instance.
func (r *Runtime) Exec(ctx context.Context, id string, cmd []string, _ runtime.ExecIO) (int, error) {
	run, err := r.beginExec(ctx, id, cmd)
	if run == nil || err != nil {
		return 0, err
	}
	return run(ctx, id, cmd)
}

func (r *Runtime) beginExec(ctx context.Context, id string, cmd []string) (Command, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "Exec", fmt.Sprint(id, cmd)); err != nil {
		return nil, err
	}
	if c := r.containers[id]; c == nil || c.State != pod.Running {
		return nil, fmt.Errorf("exec in %s: %w", id, runtime.ErrNotFound)
	}
	return r.onExec, nil
}

// Command is what an exec'd command does. When ctx ends it is killed.
type Command func(ctx context.Context, id string, cmd []string) (int, error)

// OnExec makes f what every exec'd command does.
func (r *Runtime) OnExec(f Command) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onExec = f
}

// LayerSize returns what SetLayer said of the instance's container.
func (r *Runtime) LayerSize(ctx context.Context, id string) (pod.Space, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "LayerSize", id); err != nil {
		return pod.Space{}, err
	}
	c := r.containers[id]
	if c == nil {
		return pod.Space{}, nil
	}
	return pod.Space{Bytes: r.layers[c.Name], Files: 1}, nil
}

// SetLayer makes bytes the size of the root filesystems of the containers of that name.
func (r *Runtime) SetLayer(name string, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.layers[name] = bytes
}
