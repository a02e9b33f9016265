// Package containerd implements runtime.Driver on containerd with containerd's native client. It
// creates, starts, lists, signals and removes containers and their tasks, and sets up what they
// need: specs, snapshots, shims, cgroups and standard streams. podrun calls containerd only through
// it and the packages below it. Package embedded is a containerd; package shim starts and kills shims
// without one.
//
// It makes no decisions and stores nothing about pods: whatever it caches in memory may be lost at
// any time. It does not touch any container or directory that is not podrun's own; it identifies its
// containers by their labels.
//
// Begin reading at Driver and New, and at StartContainer in package start.
package containerd

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"tags.cncf.io/container-device-interface/pkg/parser"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/device"
	registry "podrun.io/podrun/internal/image"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/exec"
	"podrun.io/podrun/internal/runtime/containerd/images"
	"podrun.io/podrun/internal/runtime/containerd/instance"
	"podrun.io/podrun/internal/runtime/containerd/legacy"
	"podrun.io/podrun/internal/runtime/containerd/orphan"
	"podrun.io/podrun/internal/runtime/containerd/resources"
	"podrun.io/podrun/internal/runtime/containerd/shimpool"
	"podrun.io/podrun/internal/runtime/containerd/start"
	"podrun.io/podrun/internal/runtime/containerd/stop"
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
	legacy.Sandboxes
	// Sweep releases what is held for sandboxes for which known returns false.
	Sweep(ctx context.Context, known func(id string) bool) error
}

// RuntimeClass describes how the pods of a runtime class are run.
type RuntimeClass = start.RuntimeClass

// IsDeviceName reports whether name has the form of a CDI device name (vendor/class=name).
func IsDeviceName(name string) bool { return parser.IsQualifiedName(name) }

// Options configure a Driver. Address, Dirs, Sandboxes, Devices and Log are required.
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
	// Devices allocates the machine's devices to sandboxes.
	Devices *device.Devices
	// SeccompDefault gives containers without a seccomp profile the profile of RuntimeDefault.
	SeccompDefault bool
	// PodMaxPids is the maximum number of processes in a pod; 0 means no limit.
	PodMaxPids int64
	// CgroupDriver is the cgroup driver of new pods; see cgroup.HasSystemd.
	CgroupDriver oci.Driver
	// CDIDirs are the directories of the CDI specifications of devices that pods may request; later
	// directories take precedence over earlier ones.
	CDIDirs []string
	// RuntimeClasses are the runtime classes that pods may name.
	RuntimeClasses map[string]RuntimeClass
	// AllowedSysctls are kernel parameters that pods may set in addition to the safe ones; see
	// pod.SafeSysctl.
	AllowedSysctls []string
	Log            *slog.Logger
}

// Driver is a connection to one containerd. The embedded types implement most of its methods. Its
// methods may be called concurrently.
type Driver struct {
	Options
	// Store holds the images.
	*images.Store
	*Lister
	*EventStream
	*resources.LayerMeter
	*start.SandboxStarter
	*start.ContainerStarter
	*stop.Stopper
	*resources.Resizer
	*exec.Execer
	*exec.Attacher
	*legacy.Importer

	client  *daemon.Client
	cache   *instance.Cache
	lookup  *instance.Lookup
	files   *instance.Files
	records *instance.SandboxRecords
	cgroups *resources.PodCgroups
	orphans *orphan.Cleaner
	shims   *shimpool.Pool
}

var _ runtime.Driver = (*Driver)(nil)

// New connects to containerd and detects which features it has. It returns ErrUnavailable if
// containerd does not answer.
func New(ctx context.Context, o Options) (*Driver, error) {
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
	machine, err := resources.NewMachine(resources.MachineOptions{
		SeccompDir: o.Dirs.Seccomp(), SeccompDefault: o.SeccompDefault,
	})
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
	d := &Driver{
		Options: o,
		client:  c,
		cache:   instance.NewCache(),
		files:   instance.NewFiles(o.Dirs),
		records: instance.NewSandboxRecords(c, o.RuntimeName, o.Dirs.Root, o.Log),
		Store: images.New(c, images.Options{
			HostsDir: o.HostsDir, Credentials: o.Credentials, Dirs: o.Dirs, Log: o.Log,
		}),
	}
	runcState := filepath.Join(o.Dirs.Runc(), o.Namespace)
	d.lookup = instance.NewLookup(c, d.cache, runcState, o.Dirs.Root)
	d.orphans = orphan.New(orphan.Options{
		Client: c, Lookup: d.lookup, Address: o.Address, Namespace: o.Namespace, RuncState: runcState, Log: o.Log,
	})
	remover := stop.NewRemover(stop.Options{
		Client: c, Lookup: d.lookup, Orphans: d.orphans, Files: d.files, Records: d.records, Log: o.Log,
	})
	d.Stopper = stop.New(remover)
	d.Execer = exec.NewExecer(exec.Options{Client: c, Dirs: o.Dirs, Log: o.Log})
	d.Attacher = exec.NewAttacher(c, d.lookup)
	d.Importer = legacy.New(legacy.Options{Client: c, Dirs: o.Dirs, Sandboxes: o.Sandboxes, Log: o.Log})
	d.connectStarters(machine, handlers, remover)
	d.Lister = &Lister{c, d.cache, d.lookup, d.files, d.shims, o.Dirs.SandboxFiles().Dir()}
	d.EventStream = &EventStream{c, d.cache, o.Namespace, o.Log}
	d.LayerMeter = resources.NewLayerMeter(c, d.lookup)
	return d, nil
}

// connectStarters sets what starts and resizes containers.
func (d *Driver) connectStarters(machine *resources.Machine, handlers *start.Handlers, remover *stop.Remover) {
	d.cgroups = resources.NewPodCgroups(resources.PodCgroupsOptions{
		Machine: machine, Orphans: d.orphans, Driver: d.CgroupDriver, Log: d.Log,
		Rules: oci.PodRules{
			CPUs: d.Devices.CPUPolicy().Offered(), MaxPids: d.PodMaxPids, StaticCPUs: d.Devices.CPUPolicy().Static,
		},
	})
	d.Resizer = resources.NewResizer(resources.ResizerOptions{
		Client: d.client, Lookup: d.lookup, Machine: machine, Cgroups: d.cgroups,
	})
	d.shims = shimpool.New(shimpool.Options{
		Client: d.client, Records: d.records, Orphans: d.orphans,
		Address: d.Address, Namespace: d.Namespace, Dirs: d.Dirs, Log: d.Log,
	})
	d.SandboxStarter = start.NewSandboxStarter(start.SandboxOptions{
		Client: d.client, Handlers: handlers, Shims: d.shims, Sandboxes: d.Sandboxes, Cgroups: d.cgroups,
		Devices: d.Devices, Records: d.records, CgroupDriver: d.CgroupDriver, AllowedSysctls: d.AllowedSysctls,
	})
	d.ContainerStarter = start.NewContainerStarter(start.Options{
		Client: d.client, Images: d.Finder, Dirs: d.Dirs, ClusterDomain: d.ClusterDomain, CDIDirs: d.CDIDirs,
		Handlers: handlers, Shims: d.shims, Sandboxes: d.Sandboxes, Machine: machine, Cgroups: d.cgroups,
		Devices: d.Devices, Files: d.files, Records: d.records, Remover: remover, Cache: d.cache, Log: d.Log,
	})
}

// Sweep implements runtime.Driver. It also weighs the cgroups that an earlier podrun has created.
func (d *Driver) Sweep(ctx context.Context, known func(sandboxID string) bool) error {
	d.cgroups.Adopt()
	// The pipes come first: one that nobody reads may block a shim.
	return errors.Join(
		d.AdoptPipes(), d.SweepViews(), d.Sandboxes.Sweep(ctx, known), d.orphans.SweepShims(ctx),
		d.shims.SweepHomes(known),
	)
}

// Close closes the connection. Containers continue to run.
func (d *Driver) Close() error { return errors.Join(d.client.Close(), d.ClosePipes()) }

// RemovePod implements runtime.Driver. It removes the image volumes, the cgroups and the sandbox
// records of the revision.
func (d *Driver) RemovePod(ctx context.Context, _ pod.Key, uid pod.UID) error {
	if err := layout.CheckUID(uid); err != nil {
		return err
	}
	ctx = d.client.Context(ctx)
	if err := d.Hide(ctx, uid); err != nil {
		return err
	}
	if err := d.cgroups.Remove(ctx, uid); err != nil {
		return err
	}
	return d.records.RemoveAll(ctx, uid)
}

// ServerVersion returns the version of the connected containerd.
func (d *Driver) ServerVersion(ctx context.Context) (string, error) {
	v, err := d.client.Version(d.client.Context(ctx))
	if err != nil {
		return "", daemon.Mapped("asking containerd for its version", err)
	}
	return v.Version, nil
}
