package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/ocispec"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/images"
	"podrun.io/podrun/internal/stdin"
	"podrun.io/podrun/internal/withheld"
)

// The files that a container's output goes to, as it comes. containerd's shim appends to them, so a
// container neither waits for a reader nor loses what it writes while there is none.
const (
	stdoutFile = "stdout.raw"
	stderrFile = "stderr.raw"
)

// specType is what containerd calls a spec's type.
const specType = "types.containerd.io/opencontainers/runtime-spec/1/Spec"

// launch is an instance on its way to running.
type launch struct {
	runtime.Start
	id string
	// generation counts the starts of this instance that were cut off before this one; see supersede.
	generation int
	image      *images.Image
	spec       []byte
	handler    handler
	// users is the first of the machine's users that are the pod's own; 0: its users are the machine's.
	users uint32
	// secrets are values that nobody may be told.
	secrets []string
	// group is what containerd tells by which containers have the same shim.
	group string
	// shim serves the sandbox already, or is to be started; without an address the task gets one through its group.
	shim shim
}

// maxGenerations is more than ever happens: podrun would have to be killed so often in the same start.
const maxGenerations = 1000

// StartContainer implements runtime.Containers.
func (r *Runtime) StartContainer(ctx context.Context, s runtime.Start) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, done := lingering(r.client.Context(ctx))
	defer done()
	for generation := range maxGenerations {
		l, err := r.prepare(ctx, s, generation)
		if err != nil {
			return err
		}
		err = r.launch(ctx, l)
		if isGhost(err) {
			r.layGhost(ctx, l.id)
			err = r.launch(ctx, l)
		}
		if l.shim.address != "" && err != nil && !errdefs.IsAlreadyExists(err) && !fromRuntime(err) && !daemon.IsInterrupted(ctx, err) {
			// The shim may have ended, or this containerd cannot share one.
			r.Log.Debug("starting without a shared shim", "container", l.id, "why", err)
			r.shims.Put(s.Sandbox.ID, shim{refused: true})
			if l.shim.model != nil {
				r.models.Put(r.kindOf(l), nil)
			}
			l.shim = shim{}
			err = r.launch(ctx, l)
		}
		if isBundleLeft(err, l.id) {
			continue
		}
		if !errdefs.IsAlreadyExists(err) {
			return startError(s, err)
		}
		if ran, err := r.supersede(ctx, l.id); ran || err != nil {
			return err
		}
	}
	return fmt.Errorf("starting %s: too many starts of it were cut off", s.Container.Name)
}

func startError(s runtime.Start, err error) error {
	if started := (*runtime.StartError)(nil); errors.As(err, &started) {
		return err
	}
	return daemon.Mapped("starting "+s.Container.Name, err)
}

// lingering is ctx with some time to finish what was begun, because a start that is cut off is more work
// to clear up than to complete.
func lingering(ctx context.Context) (context.Context, context.CancelFunc) {
	const linger = 5 * time.Second
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(linger, cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}

// prepare does all that needs nothing of containerd's, as a rule.
func (r *Runtime) prepare(ctx context.Context, s runtime.Start, generation int) (*launch, error) {
	h, err := r.handlerOf(s.Pod)
	if err != nil {
		return nil, err
	}
	l := &launch{
		Start: s, id: containerID(instanceOf(s), generation), generation: generation, handler: h,
		group: groupOf(s.Pod.UID, s.Sandbox.Attempt),
	}
	home, err := r.sandboxRecord(s.Sandbox.ID)
	if err != nil {
		return nil, err
	}
	l.users = home.FirstUser
	if err := errors.Join(l.handler.giveUsers(l.users), l.handler.driveBy(home.CgroupDriver)); err != nil {
		return nil, err
	}
	if l.image, err = r.FindImage(ctx, s.Image); err != nil {
		return nil, err
	}
	hostname, err := r.hostname(s.Pod)
	if err != nil {
		return nil, err
	}
	if err := r.fitPod(s.Pod, home.CgroupDriver); err != nil {
		return nil, err
	}
	if err := r.makeLogs(instanceOf(s)); err != nil {
		return nil, err
	}
	mounts, err := r.withTerminationLog(s)
	if err != nil {
		return nil, err
	}
	machine, err := r.machineFor(s.Pod, s.Container)
	if err != nil {
		return nil, &runtime.ReasonError{Reason: "CreateContainerConfigError", Err: fmt.Errorf("container %s: %w", s.Container.Name, err)}
	}
	if err := errors.Join(r.relabel(mounts, machine.FileLabel), giveFiles(mounts, l.users)); err != nil {
		return nil, err
	}
	user, err := l.image.User(ctx, ocispec.UserName(s.Pod, s.Container, l.image.Config.User))
	if err != nil {
		return nil, err
	}
	input := ocispec.Input{
		Pod: s.Pod, Container: s.Container, Image: l.image.Config, ID: l.id,
		Group:      l.group,
		Namespaces: ocispec.Namespaces{Network: home.Net, IPC: home.IPC, UTS: home.UTS, PID: home.PID, Shm: home.Shm, User: home.User, FirstUser: home.FirstUser},
		Hostname:   hostname, User: user, Env: s.Env, Mounts: mounts, CgroupV2: cgroup.Unified(), Driver: home.CgroupDriver,
		Machine: machine,
	}
	spec, err := ocispec.Build(input)
	if err != nil {
		return nil, &runtime.ReasonError{Reason: "CreateContainerConfigError", Err: fmt.Errorf("container %s: %w", s.Container.Name, err)}
	}
	if err := r.complete(l, spec); err != nil {
		return nil, err
	}
	public, err := r.withhold(l, input, spec)
	if err != nil {
		return nil, err
	}
	if public != spec {
		if err := r.complete(l, public); err != nil {
			return nil, err
		}
	}
	if l.spec, err = json.Marshal(public); err != nil {
		return nil, fmt.Errorf("encoding the spec of %s: %w", s.Container.Name, err)
	}
	l.shim = r.sharedShim(ctx, l)
	return l, nil
}

// complete adds to a spec what only a look at the machine tells.
func (r *Runtime) complete(l *launch, spec *specs.Spec) error {
	if l.users != 0 {
		if err := keepFlags(spec.Mounts); err != nil {
			return err
		}
	}
	return r.addDevices(l, spec)
}

// hostname is what p's containers see as the machine's name.
func (r *Runtime) hostname(p *v1.Pod) (string, error) {
	if p.Spec.HostNetwork {
		return os.Hostname()
	}
	return pod.KernelName(p, r.ClusterDomain)
}

// makeLogs makes the files that the shim will append to.
func (r *Runtime) makeLogs(i pod.Instance) error {
	dir := r.Dirs.RawLog(i.UID, i.Container, i.Attempt)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the log directory: %w", err)
	}
	for _, name := range []string{stdoutFile, stderrFile} {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
		if err != nil {
			return fmt.Errorf("making a log file: %w", err)
		}
		f.Close()
	}
	return os.MkdirAll(r.Dirs.StartedOf(i.UID), 0o700)
}

// launch makes record, root filesystem and task, and starts it. The record comes first, because
// containerd keeps a snapshot that a record names and collects one that none does. When launch fails
// there is no instance, but with a StartError, and one that never ran if it was cut off.
func (r *Runtime) launch(ctx context.Context, l *launch) error {
	r.known.saw(l.id, pod.KeyOf(l.Pod))
	if _, err := r.client.ContainerService().Create(ctx, r.containerRecord(l)); err != nil {
		return err // as it is: StartContainer asks for its kind
	}
	err := r.runTask(ctx, l)
	if err == nil {
		return nil
	}
	if daemon.IsInterrupted(ctx, err) {
		return err // containerd may be at it still: the next start supersedes what is there
	}
	// A failure of the runtime's is the container's own; any other leaves no trace.
	clean, cancel := daemon.CleanupContext(ctx)
	defer cancel()
	if fromRuntime(err) {
		err = withheld.Hush(err, l.secrets)
		now := exit{code: exitStartError, at: time.Now(), reason: reasonStartError, message: err.Error()}
		if unsaid := r.writeExit(clean, l.id, now); unsaid != nil {
			return fmt.Errorf("%w; it could not be recorded: %w", err, unsaid)
		}
		if left := r.destroyTask(clean, l.id); left != nil {
			r.Log.Warn("a failed start left its task", "container", l.id, "why", left)
		}
		return &runtime.StartError{Err: err}
	}
	if left := errors.Join(r.destroyTask(clean, l.id), r.removeRecord(clean, l.id)); left != nil {
		r.Log.Warn("a failed start left its record", "container", l.id, "why", left)
	}
	return err
}

func (r *Runtime) containerRecord(l *launch) containers.Container {
	c := containers.Container{
		ID: l.id, Image: l.Image.Name, Labels: r.startLabels(l),
		Runtime:     containers.RuntimeInfo{Name: l.handler.name, Options: l.handler.options},
		Spec:        encoded{specType, l.spec},
		Snapshotter: r.client.Snapshotter, SnapshotKey: l.id,
	}
	if l.shim.address != "" {
		c.SandboxID = l.Sandbox.ID
	}
	return c
}

// encoded is a value that is encoded already.
type encoded struct {
	url   string
	value []byte
}

func (e encoded) GetTypeUrl() string { return e.url }
func (e encoded) GetValue() []byte   { return e.value }

var _ typeurl.Any = encoded{}

func (r *Runtime) runTask(ctx context.Context, l *launch) error {
	shimReady, err := r.readyShim(ctx, l)
	if err != nil {
		return err
	}
	rootfs, err := l.image.RootFS(ctx, l.id, owned(l.users)...)
	if unready := shimReady(); err == nil {
		err = unready
	}
	if err != nil {
		return err
	}
	dir := r.Dirs.RawLog(l.Pod.UID, l.Container.Name, l.Attempt)
	request := &tasks.CreateTaskRequest{
		ContainerID: l.id, Terminal: l.Container.TTY,
		Stdout: filepath.Join(dir, stdoutFile), Stderr: filepath.Join(dir, stderrFile),
	}
	if l.Container.TTY {
		request.Stderr = "" // a terminal is one stream
	}
	if l.Container.Stdin {
		request.Stdin = r.Dirs.Stdin(l.Pod.UID, l.Container.Name, l.Attempt)
		if err := stdin.Make(request.Stdin); err != nil {
			return err
		}
	}
	for _, m := range rootfs {
		request.Rootfs = append(request.Rootfs, &types.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options})
	}
	if err := r.joinShim(request, l); err != nil {
		return err
	}
	created, err := r.client.TaskService().Create(ctx, request)
	if err != nil {
		return daemon.Native(err)
	}
	r.learnShim(l, int(created.Pid)) // now, because the process may be gone soon after its start
	defer r.keepExit(ctx, l.id, l.Start)()
	// Before the start: whoever finds the mark but no task knows that the process may have run.
	if err := r.Mark(l.Pod.UID, l.id, pod.NotesAtStart(l.Container)); err != nil {
		return err
	}
	_, err = r.client.TaskService().Start(ctx, &tasks.StartRequest{ContainerID: l.id})
	return daemon.Native(err)
}

// supersede makes way for another start of an instance of which there is a record: ran says that there
// needs none. The record of a start that was cut off stays, and the next has an ID of its own, because
// containerd goes on clearing up under the old ID and would take the new root filesystem away. Only the
// latest generation is listed, and the others are removed with it.
func (r *Runtime) supersede(ctx context.Context, id string) (ran bool, err error) {
	c, there, err := r.ours(ctx, id)
	if err != nil || !there {
		return false, err
	}
	t, err := r.task(ctx, id)
	if err != nil {
		return false, err
	}
	seen, there, err := r.observe(ctx, c, t)
	switch {
	case err != nil:
		return false, err
	case !there:
		return false, nil
	case seen.State == pod.Running || seen.State == pod.Exited:
		return true, nil // how it ended is for the next look to find
	case seen.State != pod.Created:
		return false, fmt.Errorf("an earlier start of container %s is in an unknown state", id)
	case t == nil:
		return false, r.endRemains(ctx, c)
	case r.Marked(seen.UID, id) && isInside(int(t.Pid)):
		return true, nil // its shim is still at the start, over which containerd died
	}
	if err := r.Unmark(seen.UID, id); err != nil { // before the task goes: else it would seem to have run
		return false, err
	}
	return false, r.destroyTask(ctx, id)
}

// destroyTask kills the instance's task, if there is one, and removes it. A shim would take 10 s for the
// deletion of a task that was created and not killed.
func (r *Runtime) destroyTask(ctx context.Context, id string) error {
	service := r.client.TaskService()
	_, err := service.Kill(ctx, &tasks.KillRequest{ContainerID: id, Signal: sigkill, All: true})
	if isGone(err) {
		if err := r.killForgotten(ctx, id); err != nil {
			return err
		}
	} else if err != nil {
		return daemon.Mapped("killing "+id, err)
	}
	if _, err := service.Wait(ctx, &tasks.WaitRequest{ContainerID: id}); err != nil && !isGone(err) {
		return daemon.Mapped("waiting for the end of "+id, err)
	}
	if _, err := service.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: id}); err != nil && !isGone(err) {
		return daemon.Mapped("removing the task of "+id, err)
	}
	return nil
}
