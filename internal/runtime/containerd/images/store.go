// Package images keeps the images of one containerd's namespace: it finds, fetches, loads, saves and removes them, makes
// them ready to run, and shows their files. It implements runtime.Images. When an image is fetched or removed others
// decide; of containers it knows no more than what they are made of.
//
// All that is durable is containerd's: images with their contents and layers, leases for what interrupted pulls have
// fetched, and views for volumes that are images.
package images

import (
	"context"
	"log/slog"
	"sync"

	"github.com/opencontainers/runtime-spec/specs-go"

	registry "podrun.io/podrun/internal/image"
	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/sys/memo"
)

// DefaultHostsDir is where the registries' settings are that containerd's other users have too.
const DefaultHostsDir = "/etc/containerd/certs.d"

// Options are what a Store needs. Dirs and Log must be given.
type Options struct {
	// HostsDir has the registries' settings; DefaultHostsDir if empty.
	HostsDir string
	// Credentials say who podrun is to registries.
	Credentials registry.Credentials
	Dirs        layout.Dirs
	Log         *slog.Logger
}

// Store keeps images. Its methods may be used at the same time.
type Store struct {
	o       Options
	client  *daemon.Client
	flights registry.Flights
	// cache has what is known of images by the digest of their target.
	cache memo.Map[string, *Image]
	// users has whom users' names stand for, by layers and name.
	users memo.Map[string, specs.User]
	locks sync.Map // of string and chan struct{}
}

var _ runtime.Images = (*Store)(nil)

// New returns the store of the images that the client reaches.
func New(client *daemon.Client, o Options) *Store {
	if o.HostsDir == "" {
		o.HostsDir = DefaultHostsDir
	}
	return &Store{o: o, client: client}
}

// ImageRoot is where the snapshotter has images' files, "" when it does not say.
func (s *Store) ImageRoot() string { return s.client.SnapshotRoot }

// lock waits until nobody else does what key names, which need be done only once in this process.
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
