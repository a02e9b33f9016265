// Package containerd implements runtime.Driver on containerd with containerd's native client. It
// creates, starts, lists, signals and removes containers and their tasks, and sets up what they
// need: specs, snapshots, shims, cgroups and standard streams. It and the packages below it are the
// only ones that use containerd.
//
// It makes no decisions and stores nothing about pods: whatever it caches in memory may be lost at
// any time. It does not touch any container, image, user or directory that is not podrun's own; it
// identifies its containers by their labels.
//
// Begin reading at Runtime, New and StartContainer.
package containerd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/typeurl/v2"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/device"
	registry "podrun.io/podrun/internal/image"
	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/network"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/exec"
	"podrun.io/podrun/internal/runtime/containerd/images"
	"podrun.io/podrun/internal/runtime/containerd/instance"
	"podrun.io/podrun/internal/runtime/containerd/orphan"
	"podrun.io/podrun/internal/runtime/containerd/resources"
	"podrun.io/podrun/internal/runtime/containerd/stop"
	"podrun.io/podrun/internal/sandbox"
	shims "podrun.io/podrun/internal/shim"
	"podrun.io/podrun/internal/sys/memo"
	"podrun.io/podrun/internal/sys/pipes"
)

// Defaults of Options.
const (
	DefaultNamespace = "podrun"
	DefaultRuntime   = "io.containerd.runc.v2"
)

// Sandboxes creates and removes sandboxes: what the containers of a pod share. It is implemented by
// sandbox.Store.
type Sandboxes interface {
	Prepare(p *v1.Pod) (pod.SandboxDetails, error)
	Create(ctx context.Context, p *v1.Pod, s pod.Sandbox) (pod.Sandbox, error)
	Ready(s pod.Sandbox) bool
	Remove(ctx context.Context, s pod.Sandbox) error
	// Paths returns the paths of the sandbox's namespaces and shared memory.
	Paths(s pod.Sandbox) sandbox.Paths
	// Sweep releases what is held for sandboxes for which known returns false.
	Sweep(ctx context.Context, known func(id string) bool) error
	// Legacy returns the sandboxes of the former version of podrun. ForgetLegacy removes the former
	// version's record of one.
	Legacy() ([]sandbox.Legacy, error)
	ForgetLegacy(id string) error
}

// Options configure a Runtime. Address, Dirs, Sandboxes, Present and Log are required.
type Options struct {
	// Address is the path of containerd's socket.
	Address string
	// Namespace is the containerd namespace; DefaultNamespace if empty.
	Namespace string
	// Snapshotter is the snapshotter of root filesystems; if empty, overlayfs if containerd has it,
	// else native.
	Snapshotter string
	// RuntimeName is the name of a containerd runtime or the path of its shim; DefaultRuntime if
	// empty.
	RuntimeName string
	// HostsDir is the directory with the configuration of registries; images.DefaultHostsDir if
	// empty.
	HostsDir string
	// Credentials are the node's credentials for registries.
	Credentials registry.Credentials
	// ClusterDomain is the last part of pods' fully qualified names.
	ClusterDomain string
	Dirs          layout.Dirs
	Sandboxes     Sandboxes
	// Present returns the IDs of the sandboxes that checkpoints have. A device that one of them
	// holds is not free.
	Present func() (map[string]bool, error)
	// SeccompDefault gives containers without a seccomp profile the profile of RuntimeDefault.
	SeccompDefault bool
	// PodMaxPids is the maximum number of processes in a pod; 0 means no limit.
	PodMaxPids int64
	// CgroupDriver is the cgroup driver of new pods; see cgroup.HasSystemd.
	CgroupDriver oci.Driver
	// CDIDirs are the directories of the CDI specifications of devices that pods may request; later
	// directories take precedence over earlier ones.
	CDIDirs []string
	// Devices maps the resource names that pods may request in limits to the CDI names of the
	// devices.
	Devices map[v1.ResourceName][]string
	// RuntimeClasses are the runtime classes that pods may name.
	RuntimeClasses map[string]RuntimeClass
	// AllowedSysctls are kernel parameters that pods may set in addition to the safe ones; see
	// pod.SafeSysctl.
	AllowedSysctls []string
	Log            *slog.Logger
}

// Runtime is a connection to one containerd. Its methods may be called concurrently.
type Runtime struct {
	Options
	// Store holds the images.
	*images.Store
	client      *daemon.Client
	runcOptions typeurl.Any
	cgroups     *resources.PodCgroups
	machine     *resources.Machine
	*resources.Resizer
	*stop.Stopper
	*exec.Execer
	*exec.Attacher
	remover *stop.Remover
	devices *device.Devices

	cache     *instance.Cache
	lookup    *instance.Lookup
	orphans   *orphan.Cleaner
	runcState string
	files     *instance.Files
	records   *instance.SandboxRecords
	// shims maps sandbox IDs to their shims.
	shims memo.Map[string, shim]
	// templates maps a kind of shim to how containerd starts it; nil means that podrun does not start
	// such shims itself.
	templates memo.Map[kind, *shims.Model]
	launcher  *shims.Nursery
	pipes     *pipes.Pipes
}

var _ runtime.Driver = (*Runtime)(nil)

// New connects to containerd and detects which features it has. It returns ErrUnavailable if
// containerd does not answer.
func New(ctx context.Context, o Options) (*Runtime, error) {
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace
	}
	if o.RuntimeName == "" {
		o.RuntimeName = DefaultRuntime
	}
	options, err := typeurl.MarshalAny(&runcoptions.Options{Root: o.Dirs.Runc()})
	if err != nil {
		return nil, fmt.Errorf("encoding runc's options: %w", err)
	}
	cgroups, err := cgroup.Open()
	if err != nil {
		return nil, err
	}
	c, err := daemon.Connect(ctx, daemon.Options{
		Address: o.Address, Namespace: o.Namespace, RuntimeName: o.RuntimeName, Snapshotter: o.Snapshotter,
	})
	if err != nil {
		return nil, err
	}
	o.Snapshotter = c.Snapshotter
	cache := instance.NewCache()
	lookup, runcState := instance.NewLookup(c, cache), filepath.Join(o.Dirs.Runc(), o.Namespace)
	orphans := orphan.New(orphan.Options{
		Client: c, Lookup: lookup, Address: o.Address, Namespace: o.Namespace, RuncState: runcState, Log: o.Log,
	})
	files, records := instance.NewFiles(o.Dirs), instance.NewSandboxRecords(c, o.RuntimeName, o.Log)
	remover := stop.NewRemover(stop.Options{
		Client: c, Lookup: lookup, Orphans: orphans, Files: files, Records: records, Log: o.Log,
	})
	fifos := pipes.New(o.Dirs.Fifos())
	machine := resources.NewMachine(resources.MachineOptions{
		Cgroups: cgroups, SeccompDir: o.Dirs.Seccomp(), SeccompDefault: o.SeccompDefault,
	})
	pods := resources.NewPodCgroups(resources.PodCgroupsOptions{
		Cgroups: cgroups, Machine: machine, Orphans: orphans, MaxPids: o.PodMaxPids, Log: o.Log,
	})
	return &Runtime{
		Options: o,
		Store: images.New(c, images.Options{
			HostsDir: o.HostsDir, Credentials: o.Credentials, Dirs: o.Dirs, Log: o.Log,
		}),
		client: c, runcOptions: options, orphans: orphans,
		cgroups: pods, machine: machine,
		Resizer: resources.NewResizer(resources.ResizerOptions{
			Client: c, Lookup: lookup, Machine: machine, Cgroups: pods, Log: o.Log,
		}),
		devices: device.New(device.Options{Dirs: o.Dirs, Named: o.Devices, Present: o.Present}),
		cache:   cache, lookup: lookup, runcState: runcState, files: files,
		records: records, remover: remover, Stopper: stop.New(remover),
		launcher: shims.NewNursery(),
		pipes:    fifos,
		Execer:   exec.NewExecer(exec.Options{Client: c, Pipes: fifos, Dirs: o.Dirs, Log: o.Log}),
		Attacher: exec.NewAttacher(c, lookup),
	}, nil
}

// Sweep implements runtime.Driver.
func (r *Runtime) Sweep(ctx context.Context, known func(sandboxID string) bool) error {
	// The pipes come first: one that nobody reads may block a shim.
	return errors.Join(
		r.pipes.Adopt(), r.SweepViews(), r.Sandboxes.Sweep(ctx, known), r.orphans.SweepShims(ctx), r.sweepShimHomes(known),
	)
}

// Close closes the connection. Containers continue to run.
func (r *Runtime) Close() error { return errors.Join(r.client.Close(), r.pipes.Close()) }

// PrepareSandbox implements runtime.Driver. It returns an error for a pod that cannot run on this
// node.
func (r *Runtime) PrepareSandbox(p *v1.Pod) (pod.SandboxDetails, error) {
	if err := r.allowSysctls(p); err != nil {
		return pod.SandboxDetails{}, err
	}
	h, err := r.handlerOf(p)
	if err != nil {
		return pod.SandboxDetails{}, err
	}
	if err := h.setCgroupDriver(r.CgroupDriver); err != nil {
		return pod.SandboxDetails{}, err
	}
	if err := r.allowUsers(p); err != nil {
		return pod.SandboxDetails{}, err
	}
	return r.Sandboxes.Prepare(p)
}

// CreateSandbox implements runtime.Driver.
func (r *Runtime) CreateSandbox(ctx context.Context, p *v1.Pod, s pod.Sandbox) (pod.Sandbox, error) {
	if err := r.cgroups.Create(p, driverOf(s)); err != nil {
		return pod.Sandbox{}, err
	}
	made, err := r.Sandboxes.Create(ctx, p, s)
	if taken := (*network.PortInUseError)(nil); errors.As(err, &taken) {
		return made, &runtime.ReasonError{Reason: runtime.ReasonHostPortConflict, Err: err}
	}
	return made, err
}

// SandboxReady implements runtime.Driver.
func (r *Runtime) SandboxReady(s pod.Sandbox) bool { return r.Sandboxes.Ready(s) }

// RemoveSandbox implements runtime.Driver.
func (r *Runtime) RemoveSandbox(ctx context.Context, key pod.Key, s pod.Sandbox) error {
	ctx = r.client.Context(ctx)
	if err := r.records.Remove(ctx, s.ID); err != nil {
		return err
	}
	if err := r.killShim(ctx, key, s); err != nil {
		return err
	}
	r.shims.Drop(s.ID)
	if err := r.Sandboxes.Remove(ctx, s); err != nil {
		return err
	}
	return r.devices.Release(s.ID)
}
