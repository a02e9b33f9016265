package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/images"
	"podrun.io/podrun/internal/runtime/containerd/instance"
	"podrun.io/podrun/internal/secretenv"
	"podrun.io/podrun/internal/sys/stdin"
)

// specType is the type URL that containerd uses for a spec.
const specType = "types.containerd.io/opencontainers/runtime-spec/1/Spec"

// launch is an instance that is being started.
type launch struct {
	runtime.Start
	image   *images.Image
	spec    []byte
	handler handler
	// secrets are the values that must not appear in an error or a log.
	secrets []string
	// withheld holds the arguments and environment that the process gets but containerd must not
	// see; nil if there are none.
	withheld *secretenv.Process
	// group is the value by which containerd decides which containers share a shim.
	group string
	// shim already serves the sandbox or is to be started for it. If it has no address, the task
	// gets its shim through the group.
	shim shim
	// refused is the error that Started returned. begun means that Started returned nil, so that
	// the process may have run.
	refused error
	begun   bool
}

// StartContainer implements runtime.Driver.
func (r *Runtime) StartContainer(ctx context.Context, s runtime.Start) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, done := daemon.Lingering(r.client.Context(ctx))
	defer done()
	err := r.start(ctx, s)
	started := (*runtime.StartError)(nil)
	if err != nil && !errors.As(err, &started) && !errors.Is(err, runtime.ErrCutOff) {
		// Nothing is left of the instance, and no other one has its ID.
		err = errors.Join(err, r.files.RemoveOutput(pod.Container{
			ID: s.ID, UID: s.Pod.UID, Name: s.Container.Name,
		}))
	}
	return err
}

func (r *Runtime) start(ctx context.Context, s runtime.Start) error {
	l, err := r.prepare(ctx, s)
	if err != nil {
		return err
	}
	err = r.launch(ctx, l)
	started := (*runtime.StartError)(nil)
	settled := err == nil || l.refused != nil || errors.As(err, &started) || errors.Is(err, runtime.ErrCutOff)
	if settled || l.shim.address == "" {
		return err
	}
	// The shim may have exited, or this containerd cannot share one.
	r.Log.Debug("container cannot use the sandbox's shared shim; starting it without", "container", l.ID, "err", err)
	r.shims.Put(s.Sandbox.ID, shim{refused: true})
	if l.shim.model != nil {
		r.templates.Put(r.kindOf(l), nil)
	}
	if l.begun {
		return err
	}
	// Prepare it again, because what was created for the first attempt was removed with it.
	if l, err = r.prepare(ctx, s); err != nil {
		return err
	}
	l.shim = shim{}
	return r.launch(ctx, l)
}

// driverOf returns the cgroup driver of the sandbox's pod.
func driverOf(s pod.Sandbox) oci.Driver {
	if s.Details.Systemd {
		return oci.Systemd
	}
	return oci.Cgroupfs
}

// prepare does everything that, as a rule, needs no change in containerd.
func (r *Runtime) prepare(ctx context.Context, s runtime.Start) (*launch, error) {
	h, err := r.handlerOf(s.Pod)
	if err != nil {
		return nil, err
	}
	l := &launch{Start: s, handler: h, group: groupOf(s.Sandbox)}
	users, driver := s.Sandbox.Details.FirstUser, driverOf(s.Sandbox)
	if err := errors.Join(l.handler.setIOUser(users), l.handler.setCgroupDriver(driver)); err != nil {
		return nil, err
	}
	if l.image, err = r.FindImage(ctx, s.Image); err != nil {
		return nil, err
	}
	hostname, err := r.hostname(s.Pod)
	if err != nil {
		return nil, err
	}
	if err := r.cgroups.Fit(s.Pod, driver); err != nil {
		return nil, err
	}
	if err := r.files.CreateOutput(s); err != nil {
		return nil, err
	}
	mounts, err := r.files.WithTerminationLog(s)
	if err != nil {
		return nil, err
	}
	machine, err := r.machine.For(s.Pod, s.Container)
	if err != nil {
		return nil, &runtime.ReasonError{
			Reason: "CreateContainerConfigError", Err: fmt.Errorf("container %s: %w", s.Container.Name, err),
		}
	}
	if err := errors.Join(r.relabel(ctx, mounts, machine.FileLabel), chownManaged(mounts, users)); err != nil {
		return nil, err
	}
	user, err := l.image.User(ctx, oci.UserName(s.Pod, s.Container, l.image.Config.User))
	if err != nil {
		return nil, err
	}
	input := oci.Input{
		Pod: s.Pod, Container: s.Container, Image: l.image.Config, ID: l.ID,
		Group:      l.group,
		Namespaces: r.namespaces(s.Sandbox),
		Hostname:   hostname, User: user, Env: s.Env, Mounts: mounts, CgroupV2: cgroup.Unified(), Driver: driver,
		Machine: machine,
	}
	if err := r.buildSpec(l, input); err != nil {
		return nil, err
	}
	l.shim = r.sharedShim(ctx, l)
	return l, nil
}

// namespaces returns the namespaces that the sandbox's containers share.
func (r *Runtime) namespaces(s pod.Sandbox) oci.Namespaces {
	at := r.Sandboxes.Paths(s)
	return oci.Namespaces{
		Network: at.Net, IPC: at.IPC, UTS: at.UTS, PID: at.PID, Shm: at.Shm,
		User: at.User, FirstUser: s.Details.FirstUser,
	}
}

// buildSpec builds the spec that containerd receives.
func (r *Runtime) buildSpec(l *launch, input oci.Input) error {
	spec, err := oci.Build(input)
	if err != nil {
		return &runtime.ReasonError{
			Reason: "CreateContainerConfigError", Err: fmt.Errorf("container %s: %w", l.Container.Name, err),
		}
	}
	if err := r.addHostDetails(l, spec); err != nil {
		return err
	}
	public, err := r.withhold(l, input, spec)
	if err != nil {
		return err
	}
	if public != spec {
		if err := r.addHostDetails(l, public); err != nil {
			return err
		}
	}
	if l.spec, err = json.Marshal(public); err != nil {
		return fmt.Errorf("encoding the spec of %s: %w", l.Container.Name, err)
	}
	return nil
}

// addHostDetails adds to a spec what has to be read from the machine: mount flags and devices.
func (r *Runtime) addHostDetails(l *launch, spec *specs.Spec) error {
	if l.Sandbox.Details.FirstUser != 0 {
		if err := keepFlags(spec.Mounts); err != nil {
			return err
		}
	}
	return r.addDevices(l, spec)
}

// hostname returns the host name that p's containers see.
func (r *Runtime) hostname(p *v1.Pod) (string, error) {
	if p.Spec.HostNetwork {
		return os.Hostname()
	}
	return pod.KernelName(p, r.ClusterDomain)
}

// launch creates the container's record, its root filesystem and its task, and starts the task. The
// record comes first, because containerd keeps a snapshot that a record names and garbage collects
// one that no record names.
func (r *Runtime) launch(ctx context.Context, l *launch) error {
	r.cache.Observed(l.ID, pod.KeyOf(l.Pod))
	if err := r.putWithheld(l); err != nil {
		return err
	}
	_, err := r.client.ContainerService().Create(ctx, r.containerRecord(l))
	made := err == nil
	if made {
		err = r.runTask(ctx, l)
	}
	doing := "starting " + l.Container.Name
	switch {
	case err == nil:
		return nil
	case daemon.IsInterrupted(ctx, err) && l.refused == nil:
		return cutOff(doing, err) // containerd may still be starting it
	case !made:
		return errors.Join(daemon.Mapped(doing, err), r.files.RemoveWithheld(l.Pod.UID, l.ID))
	}
	clean, cancel := daemon.CleanupContext(ctx)
	defer cancel()
	if daemon.IsRuntimeFailure(err) && l.refused == nil {
		// The container itself is the cause: its record stays, so that its state can still be
		// inspected.
		err = secretenv.Hush(err, l.secrets)
		if left := r.remover.DestroyTask(clean, l.ID); left != nil {
			r.Log.Warn("task of a failed start cannot be removed", "container", l.ID, "err", left)
		}
		return &runtime.StartError{Err: err}
	}
	if l.begun {
		// The shim received the request to start the process and did not answer: the container's
		// program may have run, and may still run.
		if left := r.remover.DestroyTask(clean, l.ID); left != nil {
			return cutOff(doing, fmt.Errorf(
				"%w; its process may still run and cannot be killed: %w", daemon.Native(err), left))
		}
		return &runtime.StartError{Err: daemon.Mapped(doing, err), Unknown: true}
	}
	c := pod.Container{ID: l.ID, Name: l.Container.Name, UID: l.Pod.UID, Attempt: l.Attempt}
	if left := r.remover.Undo(clean, c); left != nil {
		return cutOff(doing, fmt.Errorf("%w; what it created cannot be removed: %w", daemon.Native(err), left))
	}
	return daemon.Mapped(doing, err)
}

// cutOff returns the error of a start that may have left something.
func cutOff(doing string, err error) error {
	return fmt.Errorf("%w: %w", runtime.ErrCutOff, daemon.Mapped(doing, err))
}

// containerRecord returns the record of the container in containerd.
func (r *Runtime) containerRecord(l *launch) containers.Container {
	c := containers.Container{
		ID: l.ID, Image: l.Image.Name, Labels: instance.Labels(l.Start),
		Runtime:     containers.RuntimeInfo{Name: l.handler.name, Options: l.handler.options},
		Spec:        instance.Encoded{URL: specType, Value: l.spec},
		Snapshotter: r.client.Snapshotter, SnapshotKey: l.ID,
	}
	if l.shim.address != "" {
		c.SandboxID = l.Sandbox.ID
	}
	return c
}

// runTask creates the instance's root filesystem and its task, and starts the task.
func (r *Runtime) runTask(ctx context.Context, l *launch) error {
	shimReady, err := r.readyShim(ctx, l)
	if err != nil {
		return err
	}
	rootfs, err := l.image.RootFS(ctx, l.ID, idMapping(l.Sandbox.Details.FirstUser)...)
	if unready := shimReady(); err == nil {
		err = unready
	}
	if err != nil {
		return err
	}
	request := &tasks.CreateTaskRequest{ContainerID: l.ID, Terminal: l.Container.TTY}
	request.Stdout, request.Stderr = r.files.Output(l.Start)
	if l.Container.TTY {
		request.Stderr = "" // a terminal is one stream
	}
	if request.Stdin = r.files.Stdin(l.Start); request.Stdin != "" {
		if err := stdin.Make(request.Stdin); err != nil {
			return err
		}
	}
	for _, m := range rootfs {
		request.Rootfs = append(request.Rootfs, &types.Mount{
			Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options,
		})
	}
	if err := r.joinShim(request, l); err != nil {
		return err
	}
	created, err := r.client.TaskService().Create(ctx, request)
	if err != nil {
		return daemon.Native(err)
	}
	r.cacheShim(l, int(created.Pid)) // before the start, because the process may exit soon after it
	defer r.records.CreateForExit(ctx, l.ID, l.Start)()
	if l.refused = l.Started(); l.refused != nil {
		return l.refused
	}
	l.begun = true
	_, err = r.client.TaskService().Start(ctx, &tasks.StartRequest{ContainerID: l.ID})
	return daemon.Native(err)
}
