// Package daemon connects to one containerd, in one of its namespaces. It detects what this
// containerd supports, and converts its errors to those of the runtime port. The packages that use
// the connection make all other calls.
//
// Begin reading at Connect and Client.
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

// connectTimeout bounds one attempt to connect. containerd listens on this machine.
const connectTimeout = 2 * time.Second

// Snapshotters, by containerd's names.
const (
	Overlayfs = "overlayfs"
	// NativeSnapshotter copies the image into every root filesystem.
	NativeSnapshotter = "native"
)

// RemapIDs is the capability of a snapshotter that can mount root filesystems with mapped file
// owners.
const RemapIDs = "remap-ids"

// LabelLimit is the maximum length in bytes that containerd accepts for the key and the value of a
// label together.
const LabelLimit = 4096

// Options select the containerd and configure the connection. Address and Namespace are required.
type Options struct {
	// Address is the path of containerd's socket.
	Address string
	// Namespace is the containerd namespace.
	Namespace string
	// RuntimeName is the name of a containerd runtime or the path of its shim; containerd's default
	// if empty.
	RuntimeName string
	// Snapshotter is the snapshotter of root filesystems; if empty, overlayfs if containerd has it,
	// else native.
	Snapshotter string
}

// Client is a connection to one containerd and the features of that containerd. It reconnects by
// itself after containerd was restarted. Make every call with a context from Context.
type Client struct {
	*client.Client
	// Snapshotter is the snapshotter in use.
	Snapshotter string
	// SnapshotRoot is the directory of the snapshotter's files; "" if containerd does not report
	// it.
	SnapshotRoot string
	// Remaps means that the snapshotter can mount root filesystems with mapped file owners.
	Remaps bool
	// KeepsSandboxes means that containerd stores sandbox records, so that containers can share a
	// shim.
	KeepsSandboxes bool
	// Transfers means that containerd can fetch images itself.
	Transfers bool

	namespace   string
	silence     *log.Entry
	connections atomic.Int64
}

// Connect connects to containerd and detects its features. It returns ErrUnavailable if containerd
// does not answer.
func Connect(ctx context.Context, o Options) (*Client, error) {
	c := &Client{Snapshotter: o.Snapshotter, namespace: o.Namespace, silence: silence()}
	var err error
	c.Client, err = client.New(o.Address,
		client.WithDefaultNamespace(o.Namespace),
		client.WithDefaultRuntime(o.RuntimeName),
		client.WithExtraDialOpts([]grpc.DialOption{
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff: backoff.Config{
					BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second,
				},
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

// Connection returns a number that changes with each new connection, after which another containerd
// may answer.
func (c *Client) Connection() int64 { return c.connections.Load() }

// Dial connects to a Unix socket. It fails at once if nothing listens, whereas containerd's own
// dialer waits for the socket to appear.
func Dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", strings.TrimPrefix(address, "unix://"))
}

// silence returns a log entry that discards everything.
func silence() *log.Entry {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return logrus.NewEntry(l)
}

// detect reads which plugins containerd has. Versions are not sufficient, because plugins can be
// disabled.
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
	c.SnapshotRoot, c.Remaps = roots[snapshotters+c.Snapshotter],
		slices.Contains(can[snapshotters+c.Snapshotter], RemapIDs)
	c.KeepsSandboxes = usable["io.containerd.grpc.v1.sandboxes"]
	// A containerd without the mount manager has an older, different transfer service.
	c.Transfers = usable["io.containerd.grpc.v1.transfer"] && usable["io.containerd.grpc.v1.streaming"] &&
		usable["io.containerd.transfer.v1.local"] && usable["io.containerd.mount-manager.v1.bolt"]
	return nil
}

// Context returns a context for calls to containerd: it sets the namespace and discards the
// client's own log messages, which would go to standard error; what matters is returned as errors.
// A context that Context returned is returned unchanged.
func (c *Client) Context(ctx context.Context) context.Context {
	if log.GetLogger(ctx).Logger == c.silence.Logger {
		return ctx
	}
	return log.WithLogger(namespaces.WithNamespace(ctx, c.namespace), c.silence)
}

// Snapshots returns the snapshotter in use.
func (c *Client) Snapshots() snapshots.Snapshotter { return c.SnapshotService(c.Snapshotter) }

// CleanupContext returns a context that is not cancelled with ctx and ends after 10 s, for undoing
// what was begun under ctx.
func CleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
}

// Lingering returns a context that ends a few seconds after ctx, so that what was begun can be
// completed: an interrupted start takes more work to clean up than to complete.
func Lingering(ctx context.Context) (context.Context, context.CancelFunc) {
	const linger = 5 * time.Second
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(linger, cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}
