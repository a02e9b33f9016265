// Package connection connects podrun to a containerd: it chooses one (Locate), starts podrun's own
// if that is the one, restarts it when it has died, and builds the runtime on it. It binds the run
// directory to that containerd, so that its pods are in one containerd at a time (binding.go), and
// converts what the former version of podrun has saved of its pods into checkpoints (migrate.go).
//
// The package does nothing to pods otherwise, and does not call containerd itself: package
// runtime/containerd does.
//
// Begin reading at Open.
package connection

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/plugins"
	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/device"
	"podrun.io/podrun/internal/embedded"
	"podrun.io/podrun/internal/image"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/checkpointed"
	"podrun.io/podrun/internal/runtime/containerd"
	"podrun.io/podrun/internal/sandbox"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/errtext"
	"podrun.io/podrun/internal/sys/pidfd"
)

const (
	// Embedded is the address that stands for podrun's own containerd.
	Embedded = "embedded"
	// SystemAddress is the default socket of the machine's containerd.
	SystemAddress = "/run/containerd/containerd.sock"
)

// ErrNotRunning says that podrun's own containerd is the one to use, but does not run.
var ErrNotRunning = errors.New("podrun's own containerd is not running")

// UnreachableError says that containerd cannot be used. Nothing was done.
type UnreachableError struct {
	// Address is the socket, or Embedded.
	Address string
	Err     error
}

func (e *UnreachableError) Error() string {
	if e.Address == Embedded {
		return fmt.Sprintf("podrun's own containerd cannot be used: %v", e.Err)
	}
	return fmt.Sprintf("containerd at %s cannot be reached: %s", e.Address, errtext.Dial(e.Err))
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// Options say which containerd to use and how. Dirs and Log are required.
type Options struct {
	// Address is a socket or Embedded. Empty: chosen as described at Locate.
	Address string
	// Environment is the value of $CONTAINERD_ADDRESS.
	Environment string
	// Running makes Open fail with ErrNotRunning instead of starting a containerd.
	Running bool
	// Serves is embedded.Options.Serves.
	Serves bool

	Namespace, Snapshotter, RuntimeName string
	// RegistryConfig is a docker config.json with registry credentials. Empty: docker's own, if it
	// exists.
	RegistryConfig string
	// RegistryHostsDir has the registry configuration (hosts.toml). Empty: /etc/containerd/certs.d.
	RegistryHostsDir string
	Dirs             layout.Dirs
	// Boot is the kernel's boot ID. Empty: it is read.
	Boot string
	// ClusterDomain is the suffix of the pods' fully qualified names.
	ClusterDomain string
	// Network connects the pods. It may be nil if no sandbox is created.
	Network sandbox.Network
	// Store has the pods' checkpoints. nil: those below Dirs.
	Store *checkpoint.Store
	// SeccompDefault applies the RuntimeDefault profile to containers without a seccomp profile.
	SeccompDefault bool
	// PodMaxPids is the maximum number of processes of a pod. 0: no limit.
	PodMaxPids int64
	// CgroupDriver is the cgroup driver of new pods.
	CgroupDriver oci.Driver
	// CDIDirs have the CDI specifications of devices that pods may request.
	CDIDirs []string
	// Devices are the device resources that pods may request in limits, each with the CDI names of
	// its devices.
	Devices map[v1.ResourceName][]string
	// CPUs are the machine's CPUs and their policy.
	CPUs device.CPUs
	// PluginsDir is where OpenBound gets in contact with the machine's plugins: /var/lib/kubelet. Empty: it
	// does not.
	PluginsDir string
	// NoPlugins: nobody is in contact with plugins, and those that the last podrun knew are not connected.
	NoPlugins bool
	plugins   *plugins.Contact // nil: no contact
	// RuntimeClasses are the runtime classes that pods may name.
	RuntimeClasses map[string]containerd.RuntimeClass
	// AllowedSysctls are the kernel parameters that pods may set besides the safe ones.
	AllowedSysctls []string
	// KeepLogs leaves the logs of removed pods on disk.
	KeepLogs bool
	Log      *slog.Logger
}

// Connection is a containerd in use. podrun's own containerd keeps running while there is a
// Connection to it.
type Connection struct {
	// Driver is the connection to containerd. Runtime is Driver together with the pods'
	// checkpoints.
	Driver  *containerd.Driver
	Runtime *checkpointed.Runtime
	// Sandboxes are the sandboxes that Runtime uses.
	Sandboxes *sandbox.Store
	// Devices are the devices that the pods have.
	Devices *device.Devices
	// Processes tells of the ends of the pods' processes.
	Processes pidfd.Watcher
	// Address is the socket. Embedded reports that it is podrun's own.
	Address  string
	Embedded bool
	lease    *embedded.Lease
	own      embedded.Options
	o        Options
	unbind   func() // nil: not bound
}

// Backend is a runtime with all the interfaces that the agent uses. Connection.Runtime is one.
type Backend interface {
	runtime.Lister
	runtime.Notifier
	runtime.Sandboxes
	runtime.Containers
	runtime.Images
	runtime.Execer
	runtime.Data
	runtime.Layers
	// Store returns the pods' checkpoints.
	Store() *checkpoint.Store
	// RetainLogs makes the logs of a revision stay when it is removed by this process.
	RetainLogs(uid pod.UID)
	// Sweep removes what an interrupted run left behind and no list shows.
	Sweep(ctx context.Context) error
}

// Close closes the connection and ends the binding. Running pods are not affected.
func (c *Connection) Close() error {
	err := errors.Join(c.Driver.Close(), c.Processes.Close(), c.o.plugins.Close())
	if c.lease != nil {
		err = errors.Join(err, c.lease.Close())
	}
	if c.unbind != nil {
		c.unbind()
	}
	return err
}

// KeepWarm makes podrun's own containerd, if that is what is connected, run for a minute after its last client, for
// the next once. c may be nil.
func (c *Connection) KeepWarm() {
	if c == nil || c.lease == nil {
		return
	}
	if err := c.lease.KeepWarm(); err != nil {
		c.o.Log.Debug("containerd is not kept for the next once", "err", err)
	}
}

// Cool takes KeepWarm back. c may be nil.
func (c *Connection) Cool() {
	if c == nil || c.lease == nil {
		return
	}
	if err := c.lease.Cool(); err != nil {
		c.o.Log.Debug("containerd is kept for the next once", "err", err)
	}
}

// CheckCredentials returns an error if a file cannot be used as Options.RegistryConfig.
func CheckCredentials(path string) error { return image.Credentials{Path: path}.Check() }

// credentials returns the docker config.json to use. One that was named explicitly must exist.
func (o Options) credentials() image.Credentials {
	if o.RegistryConfig != "" {
		return image.Credentials{Path: o.RegistryConfig}
	}
	dir := os.Getenv("DOCKER_CONFIG")
	if dir == "" {
		home := os.Getenv("HOME")
		if home == "" { // as for a service
			me, err := user.Current()
			if err != nil {
				return image.Credentials{}
			}
			home = me.HomeDir
		}
		dir = filepath.Join(home, ".docker")
	}
	return image.Credentials{Path: filepath.Join(dir, "config.json"), Optional: true}
}

// Locate returns the address of the containerd to use; Embedded is podrun's own. The first of these
// is chosen: the address in the options, the one in the environment, podrun's own if it runs, the
// machine's if its socket exists, podrun's own.
func Locate(o Options) string {
	switch {
	case o.Address != "":
		return o.Address
	case o.Environment != "":
		return o.Environment
	case embedded.Running(o.Dirs):
		return Embedded
	}
	if _, err := os.Stat(SystemAddress); !errors.Is(err, fs.ErrNotExist) {
		return SystemAddress
	}
	return Embedded
}

// warnOfFormer warns if the chosen containerd was not asked for and podrun's own has images: it was in use
// until the machine got another one.
func (o Options) warnOfFormer(chosen string) {
	if o.Address != "" || o.Environment != "" || chosen == Embedded || !embedded.HasImages(o.Dirs) {
		return
	}
	o.Log.Warn("the machine's containerd is used, which has none of the images in podrun's own; to go on with "+
		"podrun's own, use --containerd-address embedded, or PODRUN_CONTAINERD_ADDRESS=embedded in /etc/default/podrun; "+
		"if the machine's is meant, name its socket there", "containerd", chosen, "own", o.Dirs.Embedded().Data())
}

// Open connects to the containerd that Locate returns, and starts podrun's own if that is the one. It
// returns an *UnreachableError if that fails.
func Open(ctx context.Context, o Options) (*Connection, error) {
	// Choose once: if podrun's own dies meanwhile, the machine's must not be used instead.
	o.Address = strings.TrimPrefix(Locate(o), "unix://")
	return retried(ctx, func() (*Connection, error) { return connect(ctx, o) })
}

// OpenBound is Open for a process that creates or removes pods: it binds the run directory to the
// containerd until the connection is closed, and converts what the former version of podrun has
// saved of its pods. Boot must be set in the options. beside says that a serve may run at the same
// time: as long as one does, pods of the former version are an error. OpenBound returns an
// *ElsewhereError if the run directory's pods are in another containerd or of another root directory, and a
// *RootInUseError if the root directory is in use with another run directory.
func OpenBound(ctx context.Context, o Options, beside bool) (*Connection, error) {
	chosen := Locate(o)
	o.warnOfFormer(chosen)
	o.Address = chosen
	if o.Store == nil {
		o.Store = checkpoint.NewStore(o.Dirs, o.Log)
	}
	unbindRoot, err := bindRoot(o.Dirs)
	if err != nil {
		return nil, err
	}
	here := binding{address: o.Address, namespace: o.Namespace, boot: o.Boot, root: o.Dirs.Root}
	unbindRun, err := bind(o.Dirs, here, func(root string) (bool, error) {
		store := o.Store
		if root != o.Dirs.Root {
			store = checkpoint.NewStore(layout.Dirs{Root: root, Run: o.Dirs.Run, Log: o.Dirs.Log}, o.Log)
		}
		return isEmpty(store)
	})
	if err != nil {
		unbindRoot()
		return nil, err
	}
	unbind := func() { unbindRun(); unbindRoot() }
	if o.plugins, err = o.contact(); err != nil {
		unbind()
		return nil, err
	}
	c, err := Open(ctx, o)
	if err != nil {
		unbind()
		return nil, errors.Join(err, o.plugins.Close())
	}
	c.unbind = unbind
	if err := c.migrate(ctx, beside); err != nil {
		err = fmt.Errorf("adopting the pods of a former version of podrun: %w", err)
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// retried calls connect up to three times if podrun's own containerd dies meanwhile, because
// nothing else restarts that one.
func retried(ctx context.Context, connect func() (*Connection, error)) (*Connection, error) {
	for left := 2; ; left-- {
		c, err := connect()
		var u *UnreachableError
		own := errors.As(err, &u) && u.Address == Embedded
		died := errors.Is(err, runtime.ErrUnavailable) || errors.Is(err, embedded.ErrKilled)
		if !own || !died || left == 0 || ctx.Err() != nil {
			return c, err
		}
	}
}

// connect tries once to connect to the containerd at o.Address.
func connect(ctx context.Context, o Options) (*Connection, error) {
	c := &Connection{Address: o.Address, Embedded: o.Address == Embedded}
	fail := func(err error) (*Connection, error) {
		if c.lease != nil {
			_ = c.lease.Close()
		}
		return nil, &UnreachableError{Address: o.Address, Err: err}
	}
	if c.Embedded {
		if o.Running && !embedded.Running(o.Dirs) {
			return fail(ErrNotRunning)
		}
		c.own = embedded.Options{Dirs: o.Dirs, Serves: o.Serves, Log: o.Log}
		lease, err := embedded.Ensure(ctx, c.own)
		if errors.Is(err, embedded.ErrWithoutData) {
			if root := OtherRoot(o.Dirs); root != "" {
				return nil, &ElsewhereError{
					Address: Embedded, Namespace: o.Namespace, Root: root, Run: o.Dirs.Run, Note: o.Dirs.Binding(),
				}
			}
		}
		if err != nil {
			return fail(err)
		}
		c.lease, c.Address = lease, lease.Address()
		if o.Snapshotter == "" {
			o.Snapshotter = lease.Snapshotter()
		}
		if o.RuntimeName == "" || o.RuntimeName == containerd.DefaultRuntime {
			o.RuntimeName = o.Dirs.Embedded().Shim()
		}
	}
	c.Sandboxes = sandbox.New(sandbox.Options{
		Dirs: o.Dirs, Log: o.Log, Network: o.Network, ClusterDomain: o.ClusterDomain, CgroupDriver: o.CgroupDriver,
	})
	if o.Store == nil {
		o.Store = checkpoint.NewStore(o.Dirs, o.Log)
	}
	if o.Boot == "" {
		boot, err := sys.BootID()
		if err != nil {
			return fail(err)
		}
		o.Boot = boot
	}
	c.Devices = o.allocator()
	r, err := containerd.New(ctx, containerd.Options{
		Address:        c.Address,
		Namespace:      o.Namespace,
		Snapshotter:    o.Snapshotter,
		RuntimeName:    o.RuntimeName,
		Dirs:           o.Dirs,
		Devices:        c.Devices,
		Sandboxes:      c.Sandboxes,
		SeccompDefault: o.SeccompDefault,
		PodMaxPids:     o.PodMaxPids,
		CgroupDriver:   o.CgroupDriver,
		Log:            o.Log,
		HostsDir:       o.RegistryHostsDir,
		Credentials:    o.credentials(),
		ClusterDomain:  o.ClusterDomain,
		AllowedSysctls: o.AllowedSysctls,
		RuntimeClasses: o.RuntimeClasses,
		CDIDirs:        o.CDIDirs,
	})
	if err != nil {
		return fail(err)
	}
	c.Driver, c.o = r, o
	c.Runtime = checkpointed.New(checkpointed.Options{
		Driver:   r,
		Store:    o.Store,
		Boot:     func() string { return o.Boot },
		Dirs:     o.Dirs,
		KeepLogs: o.KeepLogs,
		Log:      o.Log,
	})
	return c, nil
}

// Present returns a function that reports whether a checkpoint names a sandbox with an ID, or may do so and cannot be
// read now.
func Present(store *checkpoint.Store) (func(id string) bool, error) {
	_, err := store.List()
	return store.MayName, err
}

// isEmpty reports whether no checkpoint names a sandbox. One that cannot be read may do so.
func isEmpty(store *checkpoint.Store) (bool, error) {
	all, err := store.List()
	if err != nil || len(store.Errors()) > 0 {
		return false, err
	}
	for _, of := range all {
		if slices.ContainsFunc(of, func(c *checkpoint.Checkpoint) bool { return len(c.Sandboxes) > 0 }) {
			return false, nil
		}
	}
	return true, nil
}
