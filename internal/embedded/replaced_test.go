package embedded

import (
	"context"
	"testing"

	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
)

// differing records how it is called.
type differing struct {
	diff.Comparer
	config diff.ApplyConfig
}

func (d *differing) Apply(ctx context.Context, _ imagespec.Descriptor, _ []mount.Mount, options ...diff.ApplyOpt) (imagespec.Descriptor, error) {
	for _, o := range options {
		if err := o(ctx, imagespec.Descriptor{}, &d.config); err != nil {
			return imagespec.Descriptor{}, err
		}
	}
	return imagespec.Descriptor{}, nil
}

// TestLayersAreSynced: whoever unpacks a layer, also one that asks for the contrary, has it synced; a daemon whose data
// need not survive a loss of power does not.
func TestLayersAreSynced(t *testing.T) {
	before := registry.Graph(func(*plugin.Registration) bool { return false })
	defer func() {
		registry.Reset()
		for _, r := range before {
			registry.Register(&r)
		}
	}()
	for _, noSync := range []bool{false, true} {
		d := &differing{}
		registry.Reset()
		registry.Register(&plugin.Registration{Type: plugins.DiffPlugin, ID: "test", InitFn: func(*plugin.InitContext) (any, error) {
			return d, nil
		}})
		replacePlugins(noSync)
		all := registry.Graph(func(*plugin.Registration) bool { return false })
		if len(all) != 1 {
			t.Fatalf("%d plugins, want 1", len(all))
		}
		made, err := all[0].InitFn(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := made.(diff.Applier).Apply(t.Context(), imagespec.Descriptor{}, nil, diff.WithSyncFs(false)); err != nil {
			t.Fatal(err)
		}
		if d.config.SyncFs == noSync {
			t.Errorf("without sync %v: a layer is synced: %v", noSync, d.config.SyncFs)
		}
	}
	if _, err := replaced((&plugin.Registration{InitFn: func(*plugin.InitContext) (any, error) { return 1, nil }}).InitFn,
		func(d differ) differ { return d })(nil); err == nil {
		t.Error("a plugin of another type is taken")
	}
}
