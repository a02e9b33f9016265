package agent

import (
	"context"
	"io"
	"log/slog"
	"net"
	goruntime "runtime"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/connection"
	"podrun.io/podrun/internal/agent/images"
	"podrun.io/podrun/internal/agent/node"
	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/agent/shutdown"
	"podrun.io/podrun/internal/agent/sources"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/containerlog"
	"podrun.io/podrun/internal/gc"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/relist"
	"podrun.io/podrun/internal/server"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/volume"
)

// Options are the options that serve, once and down have in common.
type Options struct {
	Dirs layout.Dirs
	// Connect says which containerd to use and how. Its Dirs, Boot, ClusterDomain, Network, Store,
	// KeepLogs and Log are not used.
	Connect connection.Options
	Sources sources.Options
	// Settings are the flags of Sources, which serve saves for other commands. May be nil.
	Settings sources.Settings
	// Config is what serve shows of its settings at /configz, without secrets.
	Config any
	Stdin  io.Reader
	// NodeName is the suffix of every pod name, in lower case.
	NodeName string
	// NodeLabels are labels of the node beside those that every node has, which they override.
	NodeLabels   map[string]string
	RelistPeriod time.Duration
	// Events is "auto", "on" or "off": whether to subscribe to the runtime's event stream.
	Events string
	// MaxBackoff is the longest crash back-off.
	MaxBackoff time.Duration
	// ClusterDNS are the DNS servers of pods with the dnsPolicy ClusterFirst. If empty, they use the host's.
	ClusterDNS []string
	// ClusterDomain is the suffix of the pods' fully qualified names.
	ClusterDomain string
	// CNIConfDir has the configuration of the CNI plugins, whose binaries are in CNIBinDirs.
	// Without a configuration podrun's own bridge connects the pods.
	CNIConfDir string
	CNIBinDirs []string
	// RouteToPods allows packets from other links to all ports of pods on podrun's own bridge.
	RouteToPods bool
	// PreferLocal starts a pod from a local image if an image that is always pulled cannot be pulled.
	PreferLocal bool
	// ImageDir has image archives that are loaded at the start. Empty: the directory below the root directory.
	ImageDir string
	// LogRotation says when container logs are rotated and how many files are kept.
	LogRotation containerlog.Rotation
	// LogLinks makes links to container logs in Dirs.LogLinks.
	LogLinks bool
	// Halt says how pods are terminated when the machine shuts down.
	Halt shutdown.Options
	// Garbage says when unused images are removed and when a disk counts as too full.
	Garbage gc.Policy
	// Updates say when registries are asked for newer images of pods with pod.AnnotationAutoUpdate.
	Updates images.UpdateTimes
	// Listen is where serve accepts HTTP requests besides its socket.
	Listen server.ListenOptions
	// Watchdog is the interval within which the service manager expects a sign of life. 0: none.
	Watchdog time.Duration
	// Hurry, once closed, makes every termination a kill without a grace period. May be nil.
	Hurry <-chan struct{}
	Log   *slog.Logger

	// locks are the owner locks of this process's pods. nil: they are created. For tests.
	locks *owner.Locks
	// backend replaces containerd, for tests.
	backend connection.Backend
	// machine replaces this machine, so that everything runs in virtual time. nil: this machine.
	// For tests, together with backend.
	machine *machine
}

// machine is what serve and once read of the machine. With a replaced machine nothing blocks in the
// kernel: files are polled instead of watched, no HTTP server runs, and the memory of the process
// is not tuned.
type machine struct {
	node.Info
	// parallel is the maximum number of parallel mutations.
	parallel int
	// wall is the wall clock, which may be set. nil: time.Now.
	wall func() time.Time
	// dial connects to manifest URLs. nil: over the network.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	// processes tells of the ends of processes, published is called with each status that is published, devices are
	// those of plugins, and drivers those of volumes, which plugins registers until ctx ends. All may be nil.
	processes relist.Processes
	published func(p *v1.Pod)
	devices   reconcile.Devices
	drivers   *volume.Machine
	plugins   func(ctx context.Context, v *volume.Volumes)
}

// readMachine returns the values of this machine, or those of Options.machine if it is set.
func (o Options) readMachine() (machine, error) {
	if o.machine != nil {
		return *o.machine, nil
	}
	info, err := node.Read(o.Dirs.Root, o.Connect.Devices, o.Connect.CPUs.Offered(), o.Log)
	return machine{Info: info, parallel: 2 * goruntime.NumCPU()}, err
}

// newLocks returns the owner locks for a command: owner.Serve, owner.Once or owner.Down.
func (o Options) newLocks(command string) *owner.Locks {
	if o.locks != nil {
		return o.locks
	}
	return owner.NewLocks(o.Dirs, command)
}

// opener returns what opens the sources of manifests.
func (o Options) opener() sources.Opener {
	from := sources.Opener{Options: o.Sources, NodeName: o.NodeName, Stdin: o.Stdin, Log: o.Log}
	if o.machine != nil {
		from.Unwatched, from.Dial = true, o.machine.dial
	}
	return from
}

// archives returns the image archives that are loaded at the start.
func (o Options) archives() images.Archives {
	return images.Archives{Dir: o.ImageDir, Dirs: o.Dirs, Log: o.Log}
}

// Diff returns what Serve would change on the pods of this machine now; see sources.Opener.Diff.
func Diff(ctx context.Context, o Options) ([]sources.Change, manifest.Desired, error) {
	from := o.opener()
	from.CacheDir, from.CacheReadOnly = o.Dirs.Manifests(), true
	return from.Diff(ctx, o.Dirs, status.Documents, volume.Outdated)
}
