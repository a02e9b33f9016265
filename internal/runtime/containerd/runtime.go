// Package containerd runs containers on containerd through its native client; it implements runtime.Driver. It and the
// packages below it are the only ones that know containerd. It decides nothing, and it touches no container, image, user or
// directory that is not podrun's own: containers are known by their labels.
//
// It keeps nothing of pods. What is kept in memory can be lost at any time.
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
	registry "podrun.io/podrun/internal/image"
	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/network"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/images"
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

// Sandboxes makes and removes what a pod's containers share. sandbox.Store is one.
type Sandboxes interface {
	Prepare(p *v1.Pod) (pod.SandboxDetails, error)
	Create(ctx context.Context, p *v1.Pod, s pod.Sandbox) (pod.Sandbox, error)
	Ready(s pod.Sandbox) bool
	Remove(ctx context.Context, s pod.Sandbox) error
	// Paths is where the sandbox's parts are.
	Paths(s pod.Sandbox) sandbox.Paths
	// Sweep releases what is held for sandboxes that are not known.
	Sweep(ctx context.Context, known func(id string) bool) error
	// Legacy returns the sandboxes of the former version of podrun; ForgetLegacy removes what that kept of one.
	Legacy() ([]sandbox.Legacy, error)
	ForgetLegacy(id string) error
}

// Options are what a Runtime needs. Address, Dirs, Sandboxes, Present and Log must be given.
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
	Sandboxes     Sandboxes
	// Present returns the IDs of the sandboxes that checkpoints have: a device that one of them has is not free.
	Present func() (map[string]bool, error)
	// SeccompDefault gives containers without a seccomp profile the one of RuntimeDefault.
	SeccompDefault bool
	// PodMaxPids is the most processes that a pod may have; 0: any number.
	PodMaxPids int64
	// CgroupDriver is that of new pods; see cgroup.HasSystemd.
	CgroupDriver oci.Driver
	// CDIDirs have the specifications of devices that pods may ask for, the last ones before the first.
	CDIDirs []string
	// Devices are what pods may ask for by limits, with the devices by CDI's names.
	Devices map[v1.ResourceName][]string
	// RuntimeClasses are those that pods may name.
	RuntimeClasses map[string]RuntimeClass
	// AllowedSysctls are kernel parameters that pods may set beside the safe ones; see pod.SafeSysctl.
	AllowedSysctls []string
	Log            *slog.Logger
}

// Runtime is a connection to one containerd. Its methods may be used at the same time.
type Runtime struct {
	Options
	// Store keeps the images.
	*images.Store
	client      *daemon.Client
	runcOptions typeurl.Any
	cgroups     *cgroup.Tree
	devices     *device.Devices
	limits      limits
	// classed says that the cgroups of the classes of pods are made.
	classed atomic.Bool
	// rooted says that exec comes out in containers; see confined.
	rooted atomic.Bool

	cache *cache
	// shims has the addresses of shims by sandbox ID.
	shims memo.Map[string, shim]
	// models has how containerd starts shims; nil: so that podrun does not.
	models  memo.Map[kind, *shims.Model]
	nursery *shims.Nursery
	// sizes has what the pods' cgroups were given last, as pod.SizeOf spells it.
	sizes memo.Map[pod.UID, string]
	pipes *pipes.Pipes
}

var _ runtime.Driver = (*Runtime)(nil)

// New connects and finds out what this containerd can do. ErrUnavailable: it does not answer.
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
	return &Runtime{
		Options: o,
		Store: images.New(c, images.Options{
			HostsDir: o.HostsDir, Credentials: o.Credentials, Dirs: o.Dirs, Log: o.Log,
		}),
		client: c, runcOptions: options,
		cgroups: cgroups, limits: machineLimits(cgroups),
		devices: device.New(device.Options{Dirs: o.Dirs, Named: o.Devices, Present: o.Present}),
		cache:   newCache(),
		nursery: shims.NewNursery(),
		pipes:   pipes.New(o.Dirs.Fifos()),
	}, nil
}

// Sweep implements runtime.Driver.
func (r *Runtime) Sweep(ctx context.Context, known func(sandboxID string) bool) error {
	// First what may keep a shim from answering.
	return errors.Join(r.pipes.Adopt(), r.SweepViews(), r.Sandboxes.Sweep(ctx, known), r.sweepShims(ctx), r.sweepShimHomes(known))
}

// Close ends the connection. Containers run on.
func (r *Runtime) Close() error { return errors.Join(r.client.Close(), r.pipes.Close()) }

// PrepareSandbox implements runtime.Driver. It refuses a pod that cannot be run here.
func (r *Runtime) PrepareSandbox(p *v1.Pod) (pod.SandboxDetails, error) {
	if err := r.allowSysctls(p); err != nil {
		return pod.SandboxDetails{}, err
	}
	h, err := r.handlerOf(p)
	if err != nil {
		return pod.SandboxDetails{}, err
	}
	if err := h.driveBy(r.CgroupDriver); err != nil {
		return pod.SandboxDetails{}, err
	}
	if err := r.allowUsers(p); err != nil {
		return pod.SandboxDetails{}, err
	}
	return r.Sandboxes.Prepare(p)
}

// CreateSandbox implements runtime.Driver.
func (r *Runtime) CreateSandbox(ctx context.Context, p *v1.Pod, s pod.Sandbox) (pod.Sandbox, error) {
	if err := r.limitPod(p, driverOf(s)); err != nil {
		return pod.Sandbox{}, err
	}
	r.sizes.Put(p.UID, pod.SizeOf(p))
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
	if err := r.dropRecord(ctx, s.ID); err != nil {
		return err
	}
	if err := r.endShim(ctx, key, s); err != nil {
		return err
	}
	r.shims.Drop(s.ID)
	if err := r.Sandboxes.Remove(ctx, s); err != nil {
		return err
	}
	return r.devices.Release(s.ID)
}
