package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// Exit codes of a process that SIGKILL or SIGTERM ended: 128 and the number of the signal, as in a
// shell.
const (
	killed     = 137
	terminated = 143
)

// ListContainers returns every instance.
func (r Driver) ListContainers(ctx context.Context) (map[pod.Key][]pod.Container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "ListContainers", ""); err != nil {
		return nil, err
	}
	all := map[pod.Key][]pod.Container{}
	for _, c := range r.inOrder() {
		all[c.key] = append(all[c.key], c.Container)
	}
	return all, nil
}

// InspectContainers returns the pod's instances.
func (r Driver) InspectContainers(ctx context.Context, key pod.Key, _ []string) ([]pod.Container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "InspectContainers", key.String()); err != nil {
		return nil, err
	}
	var all []pod.Container
	for _, c := range r.inOrder() {
		if c.key == key {
			all = append(all, c.Container)
		}
	}
	return all, nil
}

// inOrder returns all containers sorted by ID, so that a simulation with the same seed is
// repeatable.
func (r *Engine) inOrder() []*container {
	all := slices.Collect(maps.Values(r.containers))
	slices.SortFunc(all, func(a, b *container) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// StartContainer creates an instance that behaves as its image's Script describes.
func (r Driver) StartContainer(ctx context.Context, s runtime.Start) error {
	if err := r.create(ctx, s); err != nil {
		return err
	}
	// As with a real engine, podrun may be killed between the creation and the start.
	if err := s.Started(userOf(s)); err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.left == 0 || errors.Is(err, ErrCut) {
			return ErrCut // a killed podrun cleans up nothing
		}
		delete(r.containers, s.ID)
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[s.ID]
	if r.left == 0 || c == nil {
		return ErrCut
	}
	script := r.scripts[s.Container.Image]
	if script.StartError != nil {
		c.State, c.Reaped = pod.Created, true
		r.notify(c.key)
		return &runtime.StartError{Err: script.StartError}
	}
	r.ran = append(r.ran, s.ID)
	if script.Unanswered {
		c.State, c.Reaped = pod.Created, true
		r.notify(c.key)
		return &runtime.StartError{Err: errors.New("the start was not answered"), Unknown: true}
	}
	c.State, c.PID, c.Reaped = pod.Running, 1000+len(r.calls), false
	r.notify(c.key)
	if script.Run > 0 {
		time.AfterFunc(script.Run, func() { r.Exit(s.ID, script.Exit) })
	}
	return nil
}

// userOf returns the user of the process: root, unless the container or its pod names another one.
func userOf(s runtime.Start) string {
	uid := uint32(0)
	if id := pod.Security(s.Pod, s.Container).RunAsUser; id != nil {
		uid = uint32(*id)
	}
	return pod.UserOf(uid, 0, nil)
}

// Ran returns the IDs of the instances whose processes have run, in the order of their starts.
func (r *Engine) Ran() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ran)
}

// create creates the instance, with its process prepared to start.
func (r Driver) create(ctx context.Context, s runtime.Start) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "StartContainer", s.ID); err != nil {
		return err
	}
	if r.containers[s.ID] != nil {
		return fmt.Errorf("starting %s: its ID is in use", s.ID)
	}
	if _, ok := r.images[s.Image.Name]; !ok {
		return fmt.Errorf("starting %s: image %s: %w", s.ID, s.Image.Name, runtime.ErrNotFound)
	}
	c := &container{key: pod.KeyOf(s.Pod), Container: pod.Container{
		ID: s.ID, Name: s.Container.Name, UID: s.Pod.UID, Attempt: s.Attempt, State: pod.Created,
		SandboxID: s.Sandbox.ID,
	}}
	if s.Container.Stdin {
		c.input = &input{once: s.Container.StdinOnce && !s.Container.TTY}
	}
	r.containers[s.ID] = c
	return nil
}

// end sets a running instance to Exited. The caller holds r.mu.
func (r *Engine) end(c *container, code int, reason string) {
	if c.State != pod.Running {
		return
	}
	if reason == "" {
		reason = pod.ExitReason(code, false)
	}
	for _, ended := range r.watched[c.PID] {
		ended()
	}
	delete(r.watched, c.PID)
	c.State, c.PID = pod.Exited, 0
	c.Exit = pod.Exit{FinishedAt: r.wall().UTC().Round(0), ExitCode: code, Reason: reason}
	r.notify(c.key)
}

// ResizeContainer records the call and sends a wakeup.
func (r Driver) ResizeContainer(ctx context.Context, to runtime.Resize) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "ResizeContainer", to.ID); err != nil {
		return err
	}
	if c := r.containers[to.ID]; c != nil && c.State == pod.Running {
		r.notify(c.key)
	}
	return nil
}

// SignalContainer ends the instance, unless it ignores the signal.
func (r Driver) SignalContainer(ctx context.Context, id, signal string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "SignalContainer", id+" "+signal); err != nil {
		return err
	}
	c := r.containers[id]
	switch {
	case c == nil:
	case signal == "SIGKILL" || signal == "KILL":
		r.end(c, killed, "")
	case !r.ignoreTerm[c.Name]:
		code, has := r.termCodes[c.Name]
		if !has {
			code = terminated
		}
		r.end(c, code, "")
	}
	return nil
}

// KillRemains does nothing: no process runs that the engine does not know.
func (r Driver) KillRemains(ctx context.Context, _ pod.Key, c pod.Container) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.enter(ctx, "KillRemains", c.ID)
}

// ReapContainer removes the process of an exited instance.
func (r Driver) ReapContainer(ctx context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "ReapContainer", id); err != nil {
		return err
	}
	if c := r.containers[id]; c != nil {
		if c.State == pod.Running {
			return fmt.Errorf("reaping %s: it runs", id)
		}
		c.State, c.Reaped = pod.Created, true
	}
	return nil
}

// RemoveContainer removes an instance.
func (r Driver) RemoveContainer(ctx context.Context, of pod.Container, _ time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "RemoveContainer", of.ID); err != nil {
		return err
	}
	c := r.containers[of.ID]
	if c == nil {
		return nil
	}
	if c.State == pod.Running {
		return fmt.Errorf("removing %s: it runs", of.ID)
	}
	delete(r.containers, of.ID)
	r.notify(c.key)
	return nil
}

// IgnoreTerm makes the named container ignore all signals but SIGKILL.
func (r *Engine) IgnoreTerm(container string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ignoreTerm[container] = true
}

// ExitOnTerm makes the named container exit with the given code on all signals but SIGKILL.
func (r *Engine) ExitOnTerm(container string, code int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.termCodes[container] = code
}

// Watch calls ended when the process of an instance has ended. ended must not call the engine.
func (r *Engine) Watch(pid int, ended func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		if c.State == pod.Running && c.PID == pid {
			r.watched[pid] = append(r.watched[pid], ended)
			return true
		}
	}
	return false
}

// Exit ends a running instance with the given exit code, as if the process exited by itself.
func (r *Engine) Exit(id string, code int) { r.ExitFor(id, code, "") }

// ExitFor ends a running instance with the given exit code and reason, for example "OOMKilled".
func (r *Engine) ExitFor(id string, code int, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		r.end(c, code, reason)
	}
}

// LoseTask makes the engine forget the instance's process, as an engine does that restarts without
// its state. Whether the process still runs is unknown to the engine.
func (r *Engine) LoseTask(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		c.State, c.PID, c.Reaped = pod.Created, 0, true
		c.Exit = pod.Exit{}
		r.notify(c.key)
	}
}

// Vanish removes an instance without recording its exit, as another client of the engine such as
// `ctr` does.
func (r *Engine) Vanish(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		delete(r.containers, id)
		r.notify(c.key)
	}
}

// Reboot ends everything as a power failure does: no exit is known, and no sandbox exists any more.
func (r *Engine) Reboot(boot string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.boot = boot
	clear(r.sandboxes)
	clear(r.cgroups)
	for _, c := range r.containers {
		c.State, c.PID, c.Reaped = pod.Created, 0, true
	}
	for _, ch := range r.wakeups {
		select {
		case ch <- runtime.Wakeup{All: true}:
		default:
		}
	}
}

// Exec runs the Command of OnExec. Without one it returns exit code 0 at once if the instance runs.
func (r Driver) Exec(ctx context.Context, id string, cmd []string, streams runtime.ExecIO) (int, error) {
	run, err := r.beginExec(ctx, id, cmd)
	if err != nil {
		return 0, err
	}
	if streams.Started != nil {
		streams.Started()
	}
	if run == nil {
		return 0, nil
	}
	return run(ctx, id, cmd)
}

func (r Driver) beginExec(ctx context.Context, id string, cmd []string) (Command, error) {
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

// Command is the behaviour of exec'd commands. It must return when ctx ends.
type Command func(ctx context.Context, id string, cmd []string) (int, error)

// OnExec sets the behaviour of every exec'd command.
func (r *Engine) OnExec(f Command) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onExec = f
}

// LayerSize returns the size of an empty root filesystem.
func (r Driver) LayerSize(ctx context.Context, id string) (pod.Space, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.enter(ctx, "LayerSize", id); err != nil {
		return pod.Space{}, err
	}
	if r.containers[id] == nil {
		return pod.Space{}, nil
	}
	return pod.Space{Files: 1}, nil
}
