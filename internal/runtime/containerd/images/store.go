// Package images manages the images of one containerd namespace: it finds, pulls, loads, saves and
// removes them, unpacks them, and mounts their files. It implements runtime.Images.
//
// It does not decide when an image is pulled or removed, and of containers it only knows from which
// image they were created. All durable data is containerd's: images with their contents and layers,
// leases for what interrupted pulls have fetched, and view snapshots for volumes that are images.
//
// Begin reading at Store.
package images

import (
	"context"
	"log/slog"
	"sync"

	"github.com/opencontainers/runtime-spec/specs-go"

	"podrun.io/podrun/internal/checkpoint/layout"
	registry "podrun.io/podrun/internal/image"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/sys/memo"
)

// DefaultHostsDir is the directory of registry configuration that containerd's other clients use
// too.
const DefaultHostsDir = "/etc/containerd/certs.d"

// Options configure a Store. Dirs and Log are required.
type Options struct {
	// HostsDir is the directory with the configuration of registries; DefaultHostsDir if empty.
	HostsDir string
	// Credentials are the node's credentials for registries.
	Credentials registry.Credentials
	Dirs        layout.Dirs
	Log         *slog.Logger
}

// Store manages images. Its methods may be called concurrently.
type Store struct {
	o       Options
	client  *daemon.Client
	flights registry.Flights
	// cache maps the digest of an image's target to what is known of the image.
	cache memo.Map[string, *Image]
	// users maps an image's layers and a user name to the user.
	users memo.Map[string, specs.User]
	locks sync.Map // of string and chan struct{}
}

var _ runtime.Images = (*Store)(nil)

// New returns the store of the images in the client's namespace.
func New(client *daemon.Client, o Options) *Store {
	if o.HostsDir == "" {
		o.HostsDir = DefaultHostsDir
	}
	return &Store{o: o, client: client}
}

// ImageRoot returns the directory of the snapshotter's files, "" if containerd does not report it.
func (s *Store) ImageRoot() string { return s.client.SnapshotRoot }

// lock waits until no other goroutine holds the lock of key. It serialises work that this process
// needs to do only once.
func (s *Store) lock(ctx context.Context, key string) (unlock func(), err error) {
	held, _ := s.locks.LoadOrStore(key, make(chan struct{}, 1))
	lock := held.(chan struct{})
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
