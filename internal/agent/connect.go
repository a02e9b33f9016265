package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/embedded"
	"podrun.io/podrun/internal/image"
	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/checkpointed"
	"podrun.io/podrun/internal/runtime/containerd"
	"podrun.io/podrun/internal/sandbox"
	"podrun.io/podrun/internal/sys"
)

const (
	// Embedded is the address that stands for podrun's own containerd.
	Embedded = "embedded"
	// SystemAddress is where a machine's containerd listens.
	SystemAddress = "/run/containerd/containerd.sock"
)

// ErrNotRunning says that podrun's own containerd is what would be used, and that it does not run.
var ErrNotRunning = errors.New("podrun's own containerd is not running")

// UnreachableError says that containerd cannot be used; nothing was done.
type UnreachableError struct {
	// Address is the socket, or Embedded.
	Address string
	Err     error
}

func (e *UnreachableError) Error() string {
	if e.Address == Embedded {
		return fmt.Sprintf("podrun's own containerd cannot be used: %v", e.Err)
	}
	return fmt.Sprintf("containerd at %s cannot be reached: %v", e.Address, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// ConnectOptions say which containerd to use and how. Dirs and Log must be given.
type ConnectOptions struct {
	// Address is a socket or Embedded; empty: chosen by what is there, see Locate.
	Address string
	// Environment is the value of $CONTAINERD_ADDRESS.
	Environment string
	// Running fails with ErrNotRunning rather than start a containerd.
	Running bool

	Namespace, Snapshotter, RuntimeName string
	// RegistryConfig is a docker config.json with credentials of registries; empty: docker's own, if there.
	RegistryConfig string
	// RegistryHostsDir has the registries' settings; empty: /etc/containerd/certs.d.
	RegistryHostsDir string
	Dirs             layout.Dirs
	// Boot is the kernel's boot id; "": it is asked for.
	Boot string
	// ClusterDomain ends pods' full names.
	ClusterDomain string
	// Sandboxes may be nil where no sandbox is made.
	Sandboxes containerd.Sandboxes
	// Store has the pods' checkpoints; nil: those below Dirs.
	Store *checkpoint.Store
	// SeccompDefault gives containers without a seccomp profile the one of RuntimeDefault.
	SeccompDefault bool
	// PodMaxPids is the most processes that a pod may have; 0: any number.
	PodMaxPids int64
	// CgroupDriver is that of new pods.
	CgroupDriver oci.Driver
	// CDIDirs have the specifications of devices that pods may ask for.
	CDIDirs []string
	// Devices are what pods may ask for by limits, with the devices by CDI's names.
	Devices map[v1.ResourceName][]string
	// RuntimeClasses are those that pods may name.
	RuntimeClasses map[string]containerd.RuntimeClass
	// AllowedSysctls are kernel parameters that pods may set beside the safe ones.
	AllowedSysctls []string
	// KeepLogs leaves the logs of pods that are gone where they are.
	KeepLogs bool
	Log      *slog.Logger
}

// Connection is a containerd in use. Podrun's own stays while there is one.
type Connection struct {
	// Driver is the connection to containerd; Runtime is that with the pods' checkpoints.
	Driver  *containerd.Runtime
	Runtime *checkpointed.Runtime
	// Address is the socket; Embedded says that it is podrun's own.
	Address  string
	Embedded bool
	lease    *embedded.Lease
	own      embedded.Options
	o        ConnectOptions
}

// Close ends the connection; what runs stays.
func (c *Connection) Close() error {
	err := c.Driver.Close()
	if c.lease != nil {
		err = errors.Join(err, c.lease.Close())
	}
	return err
}

// keepPoll is how often it is looked whether podrun's own containerd lives; a look costs some microseconds.
const keepPoll = 200 * time.Millisecond

// keep starts podrun's own containerd again whenever it has died, until ctx ends. The connection finds the
// new one by itself. Any other containerd is somebody else's to keep.
func (c *Connection) keep(ctx context.Context) {
	if !c.Embedded {
		return
	}
	const longest = 10 * time.Second
	pause, failed := keepPoll, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if embedded.Running(c.own.Dirs) {
			pause, failed = keepPoll, false
			continue
		}
		if !failed {
			c.own.Log.Warn("podrun's own containerd has died; starting it again")
		}
		// A daemon whose directory was removed keeps the root directory from another as long as it has clients.
		_ = c.lease.Close()
		lease, err := embedded.Ensure(ctx, c.own)
		if err != nil {
			if !failed && ctx.Err() == nil {
				c.own.Log.Error("podrun's own containerd does not start; trying again", "why", err)
			}
			pause, failed = min(2*pause, longest), true
			continue
		}
		c.lease = lease
	}
}

// credentials is the config.json to use. One that was named must be there.
func (o ConnectOptions) credentials() image.Credentials {
	if o.RegistryConfig != "" {
		return image.Credentials{Path: o.RegistryConfig}
	}
	dir := os.Getenv("DOCKER_CONFIG")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return image.Credentials{}
		}
		dir = filepath.Join(home, ".docker")
	}
	return image.Credentials{Path: filepath.Join(dir, "config.json"), Optional: true}
}

// Locate returns the address of the containerd to use, Embedded for podrun's own: the one asked for,
// else the environment's, else podrun's own if it runs, else the machine's, else podrun's own.
func Locate(o ConnectOptions) string {
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

// Connect connects to the containerd that Locate names, and starts podrun's own if it is that one. When
// that fails the error is an *UnreachableError.
func Connect(ctx context.Context, o ConnectOptions) (*Connection, error) {
	// Chosen once: when podrun's own dies meanwhile, the machine's is not to take its place.
	o.Address = strings.TrimPrefix(Locate(o), "unix://")
	return retried(ctx, func() (*Connection, error) { return connect(ctx, o) })
}

// retried connects, up to three times when podrun's own containerd dies meanwhile: nobody else keeps that one.
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

// connect tries once, with the containerd at o.Address.
func connect(ctx context.Context, o ConnectOptions) (*Connection, error) {
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
		c.own = embedded.Options{Dirs: o.Dirs, Log: o.Log}
		lease, err := embedded.Ensure(ctx, c.own)
		if err != nil {
			return fail(err)
		}
		c.lease, c.Address = lease, lease.Address()
		if o.Snapshotter == "" {
			o.Snapshotter = lease.Snapshotter()
		}
		if o.RuntimeName == "" || o.RuntimeName == containerd.DefaultRuntime {
			o.RuntimeName = o.Dirs.Shim()
		}
	}
	if o.Sandboxes == nil {
		o.Sandboxes = sandbox.New(sandbox.Options{Dirs: o.Dirs, Log: o.Log})
	}
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
	r, err := containerd.New(ctx, containerd.Options{
		Address: c.Address, Namespace: o.Namespace, Snapshotter: o.Snapshotter, RuntimeName: o.RuntimeName,
		Dirs: o.Dirs, Present: func() (map[string]bool, error) { return presentSandboxes(o.Store) }, Sandboxes: o.Sandboxes, SeccompDefault: o.SeccompDefault, PodMaxPids: o.PodMaxPids, CgroupDriver: o.CgroupDriver, Log: o.Log,
		HostsDir: o.RegistryHostsDir, Credentials: o.credentials(),
		ClusterDomain: o.ClusterDomain, AllowedSysctls: o.AllowedSysctls, RuntimeClasses: o.RuntimeClasses, CDIDirs: o.CDIDirs, Devices: o.Devices,
	})
	if err != nil {
		return fail(err)
	}
	c.Driver, c.o = r, o
	c.Runtime = checkpointed.New(checkpointed.Options{
		Driver: r, Store: o.Store, Boot: func() string { return o.Boot }, Dirs: o.Dirs, KeepLogs: o.KeepLogs, Log: o.Log,
	})
	return c, nil
}

// presentSandboxes returns the IDs of the sandboxes that checkpoints have.
func presentSandboxes(store *checkpoint.Store) (map[string]bool, error) {
	all, err := store.List()
	if err != nil {
		return nil, err
	}
	present := map[string]bool{}
	for _, of := range all {
		for _, c := range of {
			for _, s := range c.Sandboxes {
				present[s.ID] = true
			}
		}
	}
	return present, nil
}
