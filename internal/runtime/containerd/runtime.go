// Package containerd runs pods on containerd through its native client; it implements the port in
// package runtime. It is the only room that knows containerd. It decides nothing, and it touches no
// container, image user or directory that is not podrun's own: containers are known by their labels.
//
// What is durable is in the labels of containerd's containers and in each revision's directory; what is
// kept in memory can be lost at any time.
package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/log"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/status"
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
	"podrun.io/podrun/internal/sandbox"
	shims "podrun.io/podrun/internal/shim"
)

// Defaults of Options.
const (
	DefaultNamespace = "podrun"
	DefaultRuntime   = "io.containerd.runc.v2"
	DefaultHostsDir  = "/etc/containerd/certs.d"
)

// connectTimeout bounds one attempt to connect; containerd listens on this machine.
const connectTimeout = 2 * time.Second

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
	// HostsDir has the registries' settings; DefaultHostsDir if empty.
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
	client *client.Client
	// boot is the kernel's boot id.
	boot string
	// sandboxStore says that containerd keeps sandbox records, so that shims can be shared; see shim.
	sandboxStore bool
	// remaps says that the snapshotter can show root filesystems with other owners than they have.
	remaps bool
	// transferService says that containerd can fetch images itself; see transfers.
	transferService bool
	imageRoot       string
	runcOptions     typeurl.Any
	silence         *log.Entry
	cgroups         *cgroup.Tree
	devices         *device.Devices
	limits          limits
	// classed says that the cgroups of the classes of pods are made.
	classed atomic.Bool
	// rooted says that exec comes out in containers; see confined.
	rooted atomic.Bool

	flights registry.Flights
	known   *known
	// images has what is known of images by the digest of their target.
	images memo.Map[string, *image]
	// users has whom users' names stand for, by layers and name.
	users     memo.Map[string, specs.User]
	lookingUp sync.Mutex
	// sandboxes has the sandboxes' records by ID; of a record only what never changes is used.
	sandboxes memo.Map[string, sandbox.Record]
	// shims has the addresses of shims by sandbox ID.
	shims memo.Map[string, shim]
	// models has, by the runtime's name, how containerd starts shims; nil: so that podrun does not.
	models  memo.Map[string, *shims.Model]
	nursery *shims.Nursery
	// manifests has what was read of the revisions' manifests.
	manifests memo.Map[pod.UID, savedPod]
	// sizes has what the pods' cgroups were given last, as pod.SizeOf spells it.
	sizes memo.Map[pod.UID, string]
	// endings has what was noted down of instances' ends.
	endings memo.Map[string, pod.Ending]
	pipes   *pipes.Pipes
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
	if o.HostsDir == "" {
		o.HostsDir = DefaultHostsDir
	}
	boot, err := host.BootID()
	if err != nil {
		return nil, err
	}
	options, err := typeurl.MarshalAny(&runcoptions.Options{Root: o.Dirs.Runc()})
	if err != nil {
		return nil, fmt.Errorf("encoding runc's options: %w", err)
	}
	c, err := client.New(o.Address, client.WithDefaultNamespace(o.Namespace), client.WithDefaultRuntime(o.RuntimeName),
		client.WithExtraDialOpts([]grpc.DialOption{
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second},
				MinConnectTimeout: connectTimeout,
			}),
			grpc.WithContextDialer(dial),
		}))
	if err != nil {
		return nil, fmt.Errorf("connecting to containerd at %s: %w", o.Address, err)
	}
	cgroups, err := cgroup.Open()
	if err != nil {
		return nil, err
	}
	r := &Runtime{
		devices: device.New(device.Options{Dirs: o.Dirs, Named: o.Devices, Present: func() (map[string]bool, error) { return present(o.Sandboxes) }}),
		cgroups: cgroups, limits: machineLimits(cgroups, o.Owner, o.Log),
		Options: o, client: c, boot: boot, runcOptions: options, silence: silence(),
		known:   newKnown(),
		nursery: shims.NewNursery(),
		pipes:   pipes.New(o.Dirs.Fifos()),
	}
	if err := r.detect(r.context(ctx)); err != nil {
		c.Close()
		return nil, err
	}
	return r, nil
}

func silence() *log.Entry {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return logrus.NewEntry(l)
}

// Sweep removes what was cut off while it came or went, and what no list shows. For the start of a run
// that has the directories to itself, or nearly: a pod that another run is just making is made again.
func (r *Runtime) Sweep(ctx context.Context) error {
	// First what may keep a shim from answering.
	return errors.Join(r.pipes.Adopt(), r.sweepData(), r.Sandboxes.Sweep(ctx), r.sweepShims(ctx), r.sweepShimHomes())
}

// Close ends the connection. Containers run on.
func (r *Runtime) Close() error { return errors.Join(r.client.Close(), r.pipes.Close()) }

// dial fails at once where nothing listens. containerd's own dialer waits for a socket to appear.
func dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", strings.TrimPrefix(address, "unix://"))
}

// detect asks containerd what it has; versions say too little, since plugins can be disabled.
func (r *Runtime) detect(ctx context.Context) error {
	answer, err := r.client.IntrospectionService().Plugins(ctx)
	if err != nil {
		return mapped("asking containerd at "+r.Address+" for its plugins", err)
	}
	usable, roots, can := map[string]bool{}, map[string]string{}, map[string][]string{}
	for _, p := range answer.Plugins {
		usable[p.Type+"."+p.ID] = p.InitErr == nil
		roots[p.Type+"."+p.ID], can[p.Type+"."+p.ID] = p.Exports["root"], p.Capabilities
	}
	const snapshotters = "io.containerd.snapshotter.v1."
	if r.Snapshotter == "" {
		r.Snapshotter = nativeSnapshotter
		if usable[snapshotters+"overlayfs"] {
			r.Snapshotter = "overlayfs"
		}
	}
	if !usable[snapshotters+r.Snapshotter] {
		return fmt.Errorf("containerd at %s has no usable snapshotter %q", r.Address, r.Snapshotter)
	}
	r.imageRoot, r.remaps = roots[snapshotters+r.Snapshotter], slices.Contains(can[snapshotters+r.Snapshotter], remaps)
	r.sandboxStore = usable["io.containerd.grpc.v1.sandboxes"]
	// Before containerd had mounts of its own, its transfer service was another.
	r.transferService = usable["io.containerd.grpc.v1.transfer"] && usable["io.containerd.grpc.v1.streaming"] &&
		usable["io.containerd.transfer.v1.local"] && usable["io.containerd.mount-manager.v1.bolt"]
	return nil
}

// context names the namespace that all calls under it act in, and keeps what the client logs from
// standard error: what matters comes as errors.
func (r *Runtime) context(ctx context.Context) context.Context {
	return log.WithLogger(namespaces.WithNamespace(ctx, r.Namespace), r.silence)
}

// cleanupContext outlives ctx for a while, for undoing what was begun under it.
func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
}

// mapped wraps an error of containerd's with what was being done, and gives it the port's kinds.
func mapped(doing string, err error) error {
	if err == nil {
		return nil
	}
	err = native(err)
	switch {
	case errdefs.IsUnavailable(err):
		return fmt.Errorf("%s: %w: %w", doing, runtime.ErrUnavailable, err)
	case errdefs.IsNotFound(err):
		return fmt.Errorf("%s: %w: %w", doing, runtime.ErrNotFound, err)
	default:
		return fmt.Errorf("%s: %w", doing, err)
	}
}

// native gives an error of a raw call its kind; one of the client's own has it already, and would lose it.
func native(err error) error {
	if _, raw := status.FromError(err); raw {
		return errgrpc.ToNative(err)
	}
	return err
}

// isNotFound reports that an error of containerd's says that the object is missing.
func isNotFound(err error) bool { return errdefs.IsNotFound(native(err)) }

// isGone reports that a task cannot be reached because it, or the shim that held it, is gone.
func isGone(err error) bool {
	return isNotFound(err) || err != nil && strings.Contains(err.Error(), "ttrpc: closed")
}

// isInterrupted reports that a call was cut off, so that nothing is known of what it did.
func isInterrupted(ctx context.Context, err error) bool {
	err = native(err)
	return ctx.Err() != nil || errdefs.IsUnavailable(err) || errdefs.IsCanceled(err) || errdefs.IsDeadlineExceeded(err) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

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
	if err := r.dropRecord(r.context(ctx), id); err != nil {
		return err
	}
	if err := r.endShim(r.context(ctx), id); err != nil {
		return err
	}
	r.sandboxes.Drop(id)
	r.shims.Drop(id)
	if err := r.Sandboxes.Remove(ctx, id); err != nil {
		return err
	}
	return r.devices.Release(id)
}
