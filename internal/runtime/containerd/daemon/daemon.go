// Package daemon reaches one containerd, in one of its namespaces: it connects, finds out what this containerd can do,
// and says what its errors mean to podrun. What it is asked for is the other rooms' business.
package daemon

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// connectTimeout bounds one attempt to connect; containerd listens on this machine.
const connectTimeout = 2 * time.Second

// Snapshotters, by containerd's names for them.
const (
	Overlayfs = "overlayfs"
	// NativeSnapshotter copies the image into every root filesystem.
	NativeSnapshotter = "native"
)

// RemapIDs is a snapshotter's word for root filesystems that it shows with other owners than they have.
const RemapIDs = "remap-ids"

// LabelLimit is the most that containerd takes of a label's key and value together, in bytes.
const LabelLimit = 4096

// Options say which containerd to reach, and how. Address and Namespace must be given.
type Options struct {
	// Address is the path of containerd's socket.
	Address string
	// Namespace is containerd's.
	Namespace string
	// RuntimeName is the name of a runtime or the path of its shim; containerd's default if empty.
	RuntimeName string
	// Snapshotter keeps root filesystems; if empty, overlayfs where containerd has it, else native.
	Snapshotter string
}

// Client is a connection to one containerd, and what that containerd can do. It heals by itself when containerd is
// restarted. What is asked of it is to be asked under Context.
type Client struct {
	*client.Client
	// Snapshotter is the one in use.
	Snapshotter string
	// SnapshotRoot is where it has its files, "" when it does not say.
	SnapshotRoot string
	// Remaps says that it can show root filesystems with other owners than they have.
	Remaps bool
	// KeepsSandboxes says that containerd keeps sandbox records, so that containers can share a shim.
	KeepsSandboxes bool
	// Transfers says that containerd can fetch images itself.
	Transfers bool

	namespace   string
	silence     *log.Entry
	connections atomic.Int64
}

// Connect connects and finds out what this containerd can do. ErrUnavailable: it does not answer.
func Connect(ctx context.Context, o Options) (*Client, error) {
	c := &Client{Snapshotter: o.Snapshotter, namespace: o.Namespace, silence: silence()}
	var err error
	c.Client, err = client.New(o.Address, client.WithDefaultNamespace(o.Namespace), client.WithDefaultRuntime(o.RuntimeName),
		client.WithExtraDialOpts([]grpc.DialOption{
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second},
				MinConnectTimeout: connectTimeout,
			}),
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				c.connections.Add(1)
				return Dial(ctx, address)
			}),
		}))
	if err != nil {
		return nil, fmt.Errorf("connecting to containerd at %s: %w", o.Address, err)
	}
	if err := c.detect(c.Context(ctx), o.Address); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Connection tells one connection from the next: what answers then may be another containerd.
func (c *Client) Connection() int64 { return c.connections.Load() }

// Dial connects to a socket; it fails at once where nothing listens. containerd's own dialer waits for a socket to appear.
func Dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", strings.TrimPrefix(address, "unix://"))
}

func silence() *log.Entry {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return logrus.NewEntry(l)
}

// detect asks containerd what it has; versions say too little, since plugins can be disabled.
func (c *Client) detect(ctx context.Context, address string) error {
	answer, err := c.IntrospectionService().Plugins(ctx)
	if err != nil {
		return Mapped("asking containerd at "+address+" for its plugins", err)
	}
	usable, roots, can := map[string]bool{}, map[string]string{}, map[string][]string{}
	for _, p := range answer.Plugins {
		usable[p.Type+"."+p.ID] = p.InitErr == nil
		roots[p.Type+"."+p.ID], can[p.Type+"."+p.ID] = p.Exports["root"], p.Capabilities
	}
	const snapshotters = "io.containerd.snapshotter.v1."
	if c.Snapshotter == "" {
		c.Snapshotter = NativeSnapshotter
		if usable[snapshotters+Overlayfs] {
			c.Snapshotter = Overlayfs
		}
	}
	if !usable[snapshotters+c.Snapshotter] {
		return fmt.Errorf("containerd at %s has no usable snapshotter %q", address, c.Snapshotter)
	}
	c.SnapshotRoot, c.Remaps = roots[snapshotters+c.Snapshotter], slices.Contains(can[snapshotters+c.Snapshotter], RemapIDs)
	c.KeepsSandboxes = usable["io.containerd.grpc.v1.sandboxes"]
	// Before containerd had mounts of its own, its transfer service was another.
	c.Transfers = usable["io.containerd.grpc.v1.transfer"] && usable["io.containerd.grpc.v1.streaming"] &&
		usable["io.containerd.transfer.v1.local"] && usable["io.containerd.mount-manager.v1.bolt"]
	return nil
}

// Context names the namespace that all calls under it act in, and keeps what the client logs from standard error: what
// matters comes as errors. Of a context that has been through here already it is the same.
func (c *Client) Context(ctx context.Context) context.Context {
	if log.GetLogger(ctx).Logger == c.silence.Logger {
		return ctx
	}
	return log.WithLogger(namespaces.WithNamespace(ctx, c.namespace), c.silence)
}

// Snapshots are those of the snapshotter in use.
func (c *Client) Snapshots() snapshots.Snapshotter { return c.SnapshotService(c.Snapshotter) }

// CleanupContext outlives ctx for a while, for undoing what was begun under it.
func CleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
}
