package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/embedded/transfer"
)

// replacePlugins replaces some of containerd's plugins, in the list of all: its transfer service by one with limits,
// and unless noSync is set what unpacks layers by one that syncs them.
func replacePlugins(noSync bool) {
	all := registry.Graph(func(*plugin.Registration) bool { return false })
	registry.Reset()
	for _, r := range all {
		switch {
		case r.Type == plugins.TransferPlugin:
			r.InitFn = replaced(r.InitFn, transfer.Limit)
		case r.Type == plugins.DiffPlugin && !noSync:
			r.InitFn = replaced(r.InitFn, func(d differ) differ { return synced{d} })
		}
		registry.Register(&r)
	}
}

// starter is what starts a plugin.
type starter = func(*plugin.InitContext) (any, error)

// replaced returns a starter of the plugin that start starts, with another one of its type in front of it.
func replaced[T any](start starter, by func(T) T) starter {
	return func(ic *plugin.InitContext) (any, error) {
		made, err := start(ic)
		if err != nil {
			return nil, err
		}
		service, ok := made.(T)
		if !ok {
			return nil, errors.New("the plugin is of another type")
		}
		return by(service), nil
	}
}

// differ is what a plugin for the differences of file systems is.
type differ interface {
	diff.Comparer
	diff.Applier
}

// synced makes layers survive a loss of power before they are said to be unpacked. containerd's setting sync_fs does
// so only for the clients of its diff service, which its transfer service is not, and diff.WithSyncFs not for an
// overlay in a user namespace.
type synced struct{ differ }

// Apply implements diff.Applier.
func (s synced) Apply(
	ctx context.Context, layer imagespec.Descriptor, to []mount.Mount, options ...diff.ApplyOpt,
) (imagespec.Descriptor, error) {
	applied, err := s.differ.Apply(ctx, layer, to, options...)
	for i := 0; err == nil && i < len(to); i++ {
		err = syncDisk(to[i])
	}
	if err != nil {
		return imagespec.Descriptor{}, err
	}
	return applied, nil
}

// syncDisk syncs the file system on which a mount of a snapshotter keeps what is written to it: an overlay in its
// upper directory, a bind mount in its source.
func syncDisk(m mount.Mount) error {
	path := m.Source
	for _, option := range m.Options {
		if upper, is := strings.CutPrefix(option, "upperdir="); is {
			path = upper
		}
	}
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("syncing a layer: %w", err)
	}
	defer dir.Close()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return fmt.Errorf("syncing the layer in %s: %w", path, err)
	}
	return nil
}
