// Package images manages the images of one containerd namespace: it loads, saves, lists and removes
// them. The packages below it do the rest: pull fetches images, unpacked unpacks and mounts them,
// fetched keeps what interrupted pulls have fetched, and accounts finds the users of an image. Store
// is all of it and implements runtime.Images.
//
// It does not decide when an image is pulled or removed, and of containers it only knows from which
// image they were created. All durable data is containerd's: images with their contents and layers,
// leases for what interrupted pulls have fetched, and view snapshots for volumes that are images.
//
// Begin reading at Store.
package images

import (
	"log/slog"

	"podrun.io/podrun/internal/checkpoint/layout"
	registry "podrun.io/podrun/internal/image"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/images/fetched"
	"podrun.io/podrun/internal/runtime/containerd/images/pull"
	"podrun.io/podrun/internal/runtime/containerd/images/unpacked"
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
	*unpacked.Finder
	*unpacked.Views
	*unpacked.Volumes
	*fetched.Leases
	*pull.Puller
	*Inventory
	*Archives
}

var _ runtime.Images = (*Store)(nil)

// New returns the store of the images in the client's namespace.
func New(client *daemon.Client, o Options) *Store {
	if o.HostsDir == "" {
		o.HostsDir = DefaultHostsDir
	}
	views := unpacked.NewViews(o.Dirs, o.Log)
	finder := unpacked.NewFinder(client, views, o.Log)
	volumes := unpacked.NewVolumes(client, finder, o.Dirs)
	leases := fetched.New(client, o.Dirs, o.Log)
	inventory := &Inventory{client: client, volumes: volumes, leases: leases}
	return &Store{
		Finder: finder, Views: views, Volumes: volumes, Leases: leases, Inventory: inventory,
		Puller: pull.New(pull.Options{
			Client: client, Finder: finder, Leases: leases,
			HostsDir: o.HostsDir, Credentials: o.Credentials, Log: o.Log,
		}),
		Archives: &Archives{client: client, finder: finder, leases: leases, inventory: inventory},
	}
}
