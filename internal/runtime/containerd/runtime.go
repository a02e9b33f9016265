// Package containerd runs pods on containerd through its native client; it implements the port in
// package runtime. It and the rooms below it are the only ones that know containerd. It decides nothing, and it touches no
// container, image user or directory that is not podrun's own: containers are known by their labels.
//
// What is durable is in the labels of containerd's containers and in each revision's directory; what is
// kept in memory can be lost at any time.
package containerd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/typeurl/v2"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/device"
	"podrun.io/podrun/internal/host"
	registry "podrun.io/podrun/internal/image"
	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/memo"
	"podrun.io/podrun/internal/network"
	"podrun.io/podrun/internal/ocispec"
	"podrun.io/podrun/internal/pipes"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/images"
	"podrun.io/podrun/internal/runtime/revision"
	"podrun.io/podrun/internal/sandbox"
	shims "podrun.io/podrun/internal/shim"
)

// Defaults of Options.
const (
	DefaultNamespace = "podrun"
	DefaultRuntime   = "io.containerd.runc.v2"
)

// Sandboxes keeps what a pod's containers share. sandbox.Store is one.
type Sandboxes interface {
	Create(ctx context.Context, p *v1.Pod, attempt int, owner string) (pod.Sandbox, error)
	Remove(ctx context.Context, id string) error
	List() ([]sandbox.Record, error)
	Of(key pod.Key) ([]sandbox.Record, error)
	// Sweep releases what is held for sandboxes of which nothing else is left.
	Sweep(ctx context.Context) error
}

// Options are what a Runtime needs. Address, Dirs, Owner, Sandboxes and Log must be given.
type Options struct {
	// Address is the path of containerd's socket.
	Address string
	// Namespace is containerd's; DefaultNamespace if empty.
	Namespace string
	// Snapshotter keeps root filesystems; if empty, overlayfs where containerd has it, else native.
	Snapshotter string
	// RuntimeName is a runtime's name or the path of its shim; DefaultRuntime if empty.
	RuntimeName string
	// HostsDir has the registries' settings; images.DefaultHostsDir if empty.
	HostsDir string
	// Credentials say who podrun is to registries.
	Credentials registry.Credentials
	// ClusterDomain ends pods' full names.
	ClusterDomain string
	Dirs          layout.Dirs
	// Owner is the kind of run, "serve" or "once"; it is written to what is made.
	Owner     string
	Sandboxes Sandboxes
	// SeccompDefault gives containers without a seccomp profile the one of RuntimeDefault.
	SeccompDefault bool
	// PodMaxPids is the most processes that a pod may have; 0: any number.
	PodMaxPids int64
	// CgroupDriver is that of new pods; see cgroup.HasSystemd.
	CgroupDriver ocispec.Driver
	// CDIDirs have the specifications of devices that pods may ask for, the last ones before the first.
	CDIDirs []string
	// Devices are what pods may ask for by limits, with the devices by CDI's names.
	Devices map[v1.ResourceName][]string
	// RuntimeClasses are those that pods may name.
	RuntimeClasses map[string]RuntimeClass
	// AllowedSysctls are kernel parameters that pods may set beside the safe ones; see pod.SafeSysctl.
	AllowedSysctls []string
	// KeepLogs leaves pods' logs where they are when all else of them is removed; see logs.Retired.
	KeepLogs bool
	Log      *slog.Logger
}

// Runtime is a connection to one containerd. Its methods may be used at the same time.
type Runtime struct {
	Options
	// Store keeps the images.
	*images.Store
	// Files keep what is known of revisions.
	*revision.Files
	client *daemon.Client
	// boot is the kernel's boot id.
	boot        string
	runcOptions typeurl.Any
	cgroups     *cgroup.Tree
	devices     *device.Devices
	limits      limits
	// classed says that the cgroups of the classes of pods are made.
	classed atomic.Bool
	// rooted says that exec comes out in containers; see confined.
	rooted atomic.Bool

	known *known
	// sandboxes has the sandboxes' records by ID; of a record only what never changes is used.
	sandboxes memo.Map[string, sandbox.Record]
	// shims has the addresses of shims by sandbox ID.
	shims memo.Map[string, shim]
	// models has how containerd starts shims; nil: so that podrun does not.
	models  memo.Map[kind, *shims.Model]
	nursery *shims.Nursery
	// sizes has what the pods' cgroups were given last, as pod.SizeOf spells it.
	sizes memo.Map[pod.UID, string]
	pipes *pipes.Pipes
}

var (
	_ runtime.Lister     = (*Runtime)(nil)
	_ runtime.Doorbell   = (*Runtime)(nil)
	_ runtime.Sandboxes  = (*Runtime)(nil)
	_ runtime.Containers = (*Runtime)(nil)
	_ runtime.Images     = (*Runtime)(nil)
	_ runtime.Execer     = (*Runtime)(nil)
	_ runtime.Attacher   = (*Runtime)(nil)
	_ runtime.Data       = (*Runtime)(nil)
)

// New connects and finds out what this containerd can do. ErrUnavailable: it does not answer.
func New(ctx context.Context, o Options) (*Runtime, error) {
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace
	}
	if o.RuntimeName == "" {
		o.RuntimeName = DefaultRuntime
	}
	boot, err := host.BootID()
	if err != nil {
		return nil, err
	}
	options, err := typeurl.MarshalAny(&runcoptions.Options{Root: o.Dirs.Runc()})
	if err != nil {
		return nil, fmt.Errorf("encoding runc's options: %w", err)
	}
	cgroups, err := cgroup.Open()
	if err != nil {
		return nil, err
	}
	c, err := daemon.Connect(ctx, daemon.Options{Address: o.Address, Namespace: o.Namespace, RuntimeName: o.RuntimeName, Snapshotter: o.Snapshotter})
	if err != nil {
		return nil, err
	}
	o.Snapshotter = c.Snapshotter
	return &Runtime{
		devices: device.New(device.Options{Dirs: o.Dirs, Named: o.Devices, Present: func() (map[string]bool, error) { return present(o.Sandboxes) }}),
		cgroups: cgroups, limits: machineLimits(cgroups, o.Owner, o.Log),
		Store:   images.New(c, images.Options{HostsDir: o.HostsDir, Credentials: o.Credentials, Dirs: o.Dirs, Log: o.Log}),
		Files:   revision.New(revision.Options{Dirs: o.Dirs, Boot: boot, KeepLogs: o.KeepLogs, Log: o.Log}),
		Options: o, client: c, boot: boot, runcOptions: options,
		known:   newKnown(),
		nursery: shims.NewNursery(),
		pipes:   pipes.New(o.Dirs.Fifos()),
	}, nil
}

// Sweep removes what was cut off while it came or went, and what no list shows. For the start of a run
// that has the directories to itself, or nearly: a pod that another run is just making is made again.
func (r *Runtime) Sweep(ctx context.Context) error {
	// First what may keep a shim from answering.
	return errors.Join(r.pipes.Adopt(), r.Files.Sweep(), r.Sandboxes.Sweep(ctx), r.sweepShims(ctx), r.sweepShimHomes())
}

// Close ends the connection. Containers run on.
func (r *Runtime) Close() error { return errors.Join(r.client.Close(), r.pipes.Close()) }

// CreateSandbox implements runtime.Sandboxes.
func (r *Runtime) CreateSandbox(ctx context.Context, p *v1.Pod, attempt int) error {
	if err := r.allowSysctls(p); err != nil {
		return err
	}
	h, err := r.handlerOf(p)
	if err != nil {
		return err
	}
	if err := h.driveBy(r.CgroupDriver); err != nil {
		return err
	}
	if err := r.allowUsers(p); err != nil {
		return err
	}
	if err := r.limitPod(p); err != nil {
		return err
	}
	r.sizes.Put(p.UID, pod.SizeOf(p))
	_, err = r.Sandboxes.Create(ctx, p, attempt, r.Owner)
	if taken := (*network.PortTakenError)(nil); errors.As(err, &taken) {
		return &runtime.ReasonError{Reason: runtime.ReasonHostPortConflict, Err: err}
	}
	return err
}

// RemoveSandbox implements runtime.Sandboxes.
func (r *Runtime) RemoveSandbox(ctx context.Context, id string) error {
	if err := r.dropRecord(r.client.Context(ctx), id); err != nil {
		return err
	}
	if err := r.endShim(r.client.Context(ctx), id); err != nil {
		return err
	}
	r.sandboxes.Drop(id)
	r.shims.Drop(id)
	if err := r.Sandboxes.Remove(ctx, id); err != nil {
		return err
	}
	return r.devices.Release(id)
}
