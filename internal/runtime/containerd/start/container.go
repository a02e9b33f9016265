package start

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/selinux/go-selinux/label"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/device"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/images/unpacked"
	"podrun.io/podrun/internal/runtime/containerd/instance"
	"podrun.io/podrun/internal/runtime/containerd/resources"
	"podrun.io/podrun/internal/runtime/containerd/shimpool"
	"podrun.io/podrun/internal/runtime/containerd/stop"
	"podrun.io/podrun/internal/secretenv"
)

// launch is an instance that is being started.
type launch struct {
	runtime.Start
	image   *unpacked.Image
	spec    []byte
	handler handler
	// public is what spec encodes.
	public *specs.Spec
	// devices are what the container gets for its limits.
	devices device.Given
	// nodes are those of the spec's mounts that podrun makes.
	nodes []node
	// privileged: nothing is masked for the process, or kept from it.
	privileged bool
	// secrets are the values that must not appear in an error or a log.
	secrets []string
	// withheld holds the arguments and environment that the process gets but containerd must not
	// see; nil if there are none.
	withheld *secretenv.Process
	// group is the value by which containerd decides which containers share a shim.
	group string
	// shim already serves the sandbox or is to be started for it. If it is not shared, the task
	// gets its shim through the group.
	shim shimpool.Shim
	// refused is the error that Started returned. begun means that Started returned nil, so that
	// the process may have run.
	refused error
	begun   bool
}

// forShim returns what the shim of the launch depends on.
func (l *launch) forShim() shimpool.Launch {
	return shimpool.Launch{ID: l.ID, Sandbox: l.Sandbox, Runtime: l.handler.name}
}

// Options configure a ContainerStarter. All but ClusterDomain and CDIDirs are required.
type Options struct {
	Client *daemon.Client
	Images *unpacked.Finder
	Dirs   layout.Dirs
	// ClusterDomain is the last part of pods' fully qualified names.
	ClusterDomain string
	// CDIDirs are the directories of the CDI specifications of devices that pods may request; later
	// directories take precedence over earlier ones.
	CDIDirs   []string
	Handlers  *Handlers
	Shims     *shimpool.Pool
	Sandboxes Sandboxes
	Machine   *resources.Machine
	Cgroups   *resources.PodCgroups
	Devices   *device.Devices
	Files     *instance.Files
	Records   *instance.SandboxRecords
	Remover   *stop.Remover
	Cache     *instance.Cache
	Log       *slog.Logger
}

// ContainerStarter starts containers. Its methods may be called concurrently.
type ContainerStarter struct{ o Options }

// NewContainerStarter returns a ContainerStarter.
func NewContainerStarter(o Options) *ContainerStarter { return &ContainerStarter{o} }

// StartContainer implements runtime.Driver.
func (st *ContainerStarter) StartContainer(ctx context.Context, s runtime.Start) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, done := daemon.Lingering(st.o.Client.Context(ctx))
	defer done()
	err := st.start(ctx, s)
	started := (*runtime.StartError)(nil)
	if err != nil && !errors.As(err, &started) && !errors.Is(err, runtime.ErrCutOff) {
		// Nothing is left of the instance, and no other one has its ID.
		err = errors.Join(err, st.o.Files.RemoveOutput(pod.Container{
			ID: s.ID, UID: s.Pod.UID, Name: s.Container.Name,
		}))
	}
	return err
}

func (st *ContainerStarter) start(ctx context.Context, s runtime.Start) error {
	l, err := st.prepare(ctx, s)
	if err != nil {
		return err
	}
	err = st.launch(ctx, l)
	started := (*runtime.StartError)(nil)
	settled := err == nil || l.refused != nil || errors.As(err, &started) || errors.Is(err, runtime.ErrCutOff)
	if settled || !l.shim.Shared() || daemon.IsFull(err) {
		return err
	}
	// The shim may have exited, or this containerd cannot share one.
	st.o.Log.Debug("container cannot use the sandbox's shared shim; starting it without", "container", l.ID, "err", err)
	st.o.Shims.Refuse(l.forShim(), l.shim)
	if l.begun {
		return err
	}
	// Prepare it again, because what was created for the first attempt was removed with it.
	if l, err = st.prepare(ctx, s); err != nil {
		return err
	}
	l.shim = shimpool.Shim{}
	return st.launch(ctx, l)
}

// driverOf returns the cgroup driver of the sandbox's pod.
func driverOf(s pod.Sandbox) oci.Driver {
	if s.Details.Systemd {
		return oci.Systemd
	}
	return oci.Cgroupfs
}

// prepare does everything that, as a rule, needs no change in containerd.
func (st *ContainerStarter) prepare(ctx context.Context, s runtime.Start) (*launch, error) {
	h, err := st.o.Handlers.of(s.Pod)
	if err != nil {
		return nil, err
	}
	l := &launch{Start: s, handler: h, group: shimpool.GroupOf(s.Sandbox)}
	users, driver := s.Sandbox.Details.FirstUser, driverOf(s.Sandbox)
	if err := errors.Join(l.handler.setIOUser(users), l.handler.setCgroupDriver(driver)); err != nil {
		return nil, err
	}
	if l.image, err = st.o.Images.FindImage(ctx, s.Image); err != nil {
		return nil, err
	}
	hostname, err := st.hostname(s.Pod)
	if err != nil {
		return nil, err
	}
	err = st.o.Cgroups.Fit(s.Pod, driver, s.Running)
	if errors.Is(err, resources.ErrOversized) {
		st.o.Log.Debug("container starts in a pod that is larger than it should be", "pod", pod.KeyOf(s.Pod), "err", err)
		err = s.Oversized()
	}
	if err != nil {
		return nil, err
	}
	if err := st.o.Files.CreateOutput(s); err != nil {
		return nil, err
	}
	mounts, err := st.o.Files.WithTerminationLog(s)
	if err != nil {
		return nil, err
	}
	machine, err := st.o.Machine.For(s.Pod, s.Container)
	if err != nil {
		return nil, runtime.Permanent(runtime.ReasonConfig,
			fmt.Errorf("container %s: %w", s.Container.Name, err))
	}
	machine.OOMPolicy = st.o.Machine.OOMPolicy(driver)
	if err := errors.Join(st.relabel(ctx, mounts, machine.FileLabel), chownManaged(mounts, users)); err != nil {
		return nil, err
	}
	user, err := l.image.User(ctx, oci.UserName(s.Pod, s.Container, l.image.Config.User))
	if err != nil {
		return nil, err
	}
	input := oci.Input{
		Pod: s.Pod, Container: s.Container, Image: l.image.Config, ID: l.ID,
		Group:      l.group,
		Namespaces: st.namespaces(s.Sandbox),
		Hostname:   hostname, User: user.User, GroupEntries: user.GroupEntries,
		Env: s.Env, Mounts: mounts, CPUs: s.CPUs, CgroupV2: cgroup.Unified(), Driver: driver,
		Machine: machine,
	}
	if err := st.setDevices(ctx, l); err != nil {
		return nil, err
	}
	if err := st.buildSpec(l, input); err != nil {
		return nil, err
	}
	prepare := func(ctx context.Context) error { return st.o.Devices.PreStart(ctx, l.devices) }
	if err := plugged(ctx, l.Pod, prepare); err != nil {
		return nil, failed(err)
	}
	l.shim = st.o.Shims.Shared(ctx, l.forShim())
	return l, nil
}

// launch creates the container's record, its root filesystem and its task, and starts the task. The
// record comes first, because containerd keeps a snapshot that a record names and garbage collects
// one that no record names.
func (st *ContainerStarter) launch(ctx context.Context, l *launch) error {
	st.o.Cache.Observed(l.ID, pod.KeyOf(l.Pod))
	if err := st.putWithheld(l); err != nil {
		return err
	}
	_, err := st.o.Client.ContainerService().Create(ctx, st.containerRecord(l))
	made := err == nil
	if made {
		err = st.runTask(ctx, l)
	}
	doing := "starting " + l.Container.Name
	switch {
	case err == nil:
		return nil
	case daemon.IsInterrupted(ctx, err) && l.refused == nil:
		return cutOff(doing, err) // containerd may still be starting it
	case !made:
		return errors.Join(daemon.Mapped(doing, err), st.o.Files.RemoveWithheld(l.Pod.UID, l.ID))
	}
	clean, cancel := daemon.CleanupContext(ctx)
	defer cancel()
	key, c := pod.KeyOf(l.Pod), pod.Container{ID: l.ID, Name: l.Container.Name, UID: l.Pod.UID, Attempt: l.Attempt}
	failure := daemon.IsRuntimeFailure(err) || errors.Is(err, errLedAstray)
	noProgram, noSpace := daemon.IsNoProgram(err), daemon.IsFull(err) && !l.begun
	if failure {
		err = secretenv.Hush(err, l.secrets)
	}
	if failure && l.refused == nil && !noSpace {
		// The container itself is the cause: its record stays, so that its state can still be
		// inspected.
		if noProgram {
			err = &runtime.PermanentError{Fix: "check the container's command: its image has no such program", Err: err}
		}
		if left := st.o.Remover.DestroyTask(clean, key, c); left != nil {
			st.o.Log.Warn("task of a failed start cannot be removed", "container", l.ID, "err", left)
		}
		return &runtime.StartError{Err: err}
	}
	if l.begun {
		// The shim received the request to start the process and did not answer: the container's
		// program may have run, and may still run.
		if left := st.o.Remover.DestroyTask(clean, key, c); left != nil {
			return cutOff(doing, fmt.Errorf(
				"%w; its process may still run and cannot be killed: %w", daemon.Native(err), left))
		}
		return &runtime.StartError{Err: daemon.Mapped(doing, err), Unknown: true}
	}
	if left := st.o.Remover.Undo(clean, key, c); left != nil {
		return cutOff(doing, fmt.Errorf("%w; what it created cannot be removed: %w", daemon.Native(err), left))
	}
	return daemon.Mapped(doing, err)
}

// cutOff returns the error of a start that may have left something.
func cutOff(doing string, err error) error {
	return fmt.Errorf("%w: %w", runtime.ErrCutOff, daemon.Mapped(doing, err))
}

// labelled returns the options of a mount of a root filesystem whose files all have that SELinux label; "" for none.
func labelled(m mount.Mount, files string) []string {
	if files == "" || m.Type == "bind" { // the kernel ignores the option there
		return m.Options
	}
	return append(slices.Clone(m.Options), label.FormatMountLabel("", files))
}

// runTask creates the instance's root filesystem and its task, and starts the task.
func (st *ContainerStarter) runTask(ctx context.Context, l *launch) error {
	shimReady, err := st.o.Shims.Ready(ctx, l.forShim(), l.shim)
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
	request.Stdout, request.Stderr = st.o.Files.Output(l.Start)
	if l.Container.TTY {
		request.Stderr = "" // a terminal is one stream
	}
	if request.Stdin, err = st.o.Files.CreateStdin(l.Start); err != nil {
		return err
	}
	if request.Stdin == "" && !l.Container.TTY && coversDev(l.Container) && l.handler.isRunc() {
		request.Stdin = instance.EmptyStdin
	}
	for _, m := range rootfs {
		request.Rootfs = append(request.Rootfs, &types.Mount{
			Type: m.Type, Source: m.Source, Target: m.Target, Options: labelled(m, l.public.Linux.MountLabel),
		})
	}
	if err := shimpool.Join(request, l.shim, l.handler.options); err != nil {
		return err
	}
	err = l.makeNodes(ctx)
	defer st.removeNodes(l)
	if err != nil {
		return err
	}
	created, err := st.o.Client.TaskService().Create(ctx, request)
	if err != nil {
		return daemon.Native(err)
	}
	// Before the start, because the process may exit soon after it.
	st.o.Shims.CacheShim(l.forShim(), l.shim, int(created.Pid))
	defer st.o.Records.CreateForExit(ctx, l.ID, l.Start)()
	if l.handler.isRunc() && !l.privileged {
		others := l.handler.binary != "" || l.public.Hooks != nil
		if err := verify(int(created.Pid), l.public, others); err != nil {
			return err
		}
	}
	who := l.public.Process.User
	if l.refused = l.Started(pod.UserOf(who.UID, who.GID, who.AdditionalGids)); l.refused != nil {
		return l.refused
	}
	l.begun = true
	_, err = st.o.Client.TaskService().Start(ctx, &tasks.StartRequest{ContainerID: l.ID})
	return daemon.Native(err)
}
