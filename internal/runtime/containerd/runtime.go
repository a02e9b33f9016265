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
	"log/slog"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"tags.cncf.io/container-device-interface/pkg/parser"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/device"
	registry "podrun.io/podrun/internal/image"
	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/exec"
	"podrun.io/podrun/internal/runtime/containerd/images"
	"podrun.io/podrun/internal/runtime/containerd/instance"
	"podrun.io/podrun/internal/runtime/containerd/orphan"
	"podrun.io/podrun/internal/runtime/containerd/resources"
	"podrun.io/podrun/internal/runtime/containerd/start"
	"podrun.io/podrun/internal/runtime/containerd/stop"
	"podrun.io/podrun/internal/sandbox"
	"podrun.io/podrun/internal/sys/pipes"
)

// Defaults of Options.
const (
	DefaultNamespace = "podrun"
	DefaultRuntime   = start.DefaultRuntime
)

// Sandboxes creates and removes sandboxes: what the containers of a pod share. It is implemented by
// sandbox.Store.
type Sandboxes interface {
	start.Sandboxes
	// Sweep releases what is held for sandboxes for which known returns false.
	Sweep(ctx context.Context, known func(id string) bool) error
	// Legacy returns the sandboxes of the former version of podrun. ForgetLegacy removes the former
	// version's record of one.
	Legacy() ([]sandbox.Legacy, error)
	ForgetLegacy(id string) error
}

// RuntimeClass describes how the pods of a runtime class are run.
type RuntimeClass = start.RuntimeClass

// IsDeviceName reports whether name has the form of a CDI device name (vendor/class=name).
func IsDeviceName(name string) bool { return parser.IsQualifiedName(name) }

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
	*start.SandboxStarter
	*start.ContainerStarter
	*stop.Stopper
	*resources.Resizer
	*exec.Execer
	*exec.Attacher

	client    *daemon.Client
	cache     *instance.Cache
	lookup    *instance.Lookup
	files     *instance.Files
	records   *instance.SandboxRecords
	cgroups   *resources.PodCgroups
	orphans   *orphan.Cleaner
	shims     *start.ShimPool
	pipes     *pipes.Pipes
	runcState string
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
	handlers, err := start.NewHandlers(o.RuntimeName, o.Dirs.Runc(), o.RuntimeClasses)
	if err != nil {
		return nil, err
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
	r := &Runtime{
		Options: o,
		client:  c,
		cache:   instance.NewCache(),
		files:   instance.NewFiles(o.Dirs),
		records: instance.NewSandboxRecords(c, o.RuntimeName, o.Log),
		pipes:   pipes.New(o.Dirs.Fifos()),
		Store: images.New(c, images.Options{
			HostsDir: o.HostsDir, Credentials: o.Credentials, Dirs: o.Dirs, Log: o.Log,
		}),
		runcState: filepath.Join(o.Dirs.Runc(), o.Namespace),
	}
	r.lookup = instance.NewLookup(c, r.cache)
	r.orphans = orphan.New(orphan.Options{
		Client: c, Lookup: r.lookup, Address: o.Address, Namespace: o.Namespace, RuncState: r.runcState, Log: o.Log,
	})
	remover := stop.NewRemover(stop.Options{
		Client: c, Lookup: r.lookup, Orphans: r.orphans, Files: r.files, Records: r.records, Log: o.Log,
	})
	r.Stopper = stop.New(remover)
	r.Execer = exec.NewExecer(exec.Options{Client: c, Pipes: r.pipes, Dirs: o.Dirs, Log: o.Log})
	r.Attacher = exec.NewAttacher(c, r.lookup)
	r.connectStarters(cgroups, handlers, remover)
	return r, nil
}

// connectStarters sets what starts and resizes containers.
func (r *Runtime) connectStarters(cgroups *cgroup.Tree, handlers *start.Handlers, remover *stop.Remover) {
	machine := resources.NewMachine(resources.MachineOptions{
		Cgroups: cgroups, SeccompDir: r.Dirs.Seccomp(), SeccompDefault: r.SeccompDefault,
	})
	r.cgroups = resources.NewPodCgroups(resources.PodCgroupsOptions{
		Cgroups: cgroups, Machine: machine, Orphans: r.orphans, MaxPids: r.PodMaxPids, Log: r.Log,
	})
	r.Resizer = resources.NewResizer(resources.ResizerOptions{
		Client: r.client, Lookup: r.lookup, Machine: machine, Cgroups: r.cgroups, Log: r.Log,
	})
	r.shims = start.NewShimPool(start.ShimOptions{
		Client: r.client, Records: r.records, Orphans: r.orphans,
		Address: r.Address, Namespace: r.Namespace, Dirs: r.Dirs, Log: r.Log,
	})
	devices := device.New(device.Options{Dirs: r.Dirs, Named: r.Devices, Present: r.Present})
	r.SandboxStarter = start.NewSandboxStarter(start.SandboxOptions{
		Client: r.client, Handlers: handlers, Shims: r.shims, Sandboxes: r.Sandboxes, Cgroups: r.cgroups,
		Devices: devices, Records: r.records, CgroupDriver: r.CgroupDriver, AllowedSysctls: r.AllowedSysctls,
	})
	r.ContainerStarter = start.NewContainerStarter(start.Options{
		Client: r.client, Images: r.Store, Dirs: r.Dirs, ClusterDomain: r.ClusterDomain, CDIDirs: r.CDIDirs,
		Handlers: handlers, Shims: r.shims, Sandboxes: r.Sandboxes, Machine: machine, Cgroups: r.cgroups,
		Devices: devices, Files: r.files, Records: r.records, Remover: remover, Cache: r.cache, Log: r.Log,
	})
}

// Sweep implements runtime.Driver.
func (r *Runtime) Sweep(ctx context.Context, known func(sandboxID string) bool) error {
	// The pipes come first: one that nobody reads may block a shim.
	return errors.Join(
		r.pipes.Adopt(), r.SweepViews(), r.Sandboxes.Sweep(ctx, known), r.orphans.SweepShims(ctx),
		r.shims.SweepHomes(known),
	)
}

// Close closes the connection. Containers continue to run.
func (r *Runtime) Close() error { return errors.Join(r.client.Close(), r.pipes.Close()) }
