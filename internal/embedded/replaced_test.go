package embedded

import (
	"context"
	"errors"
	"testing"

	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/test"
)

// differing applies a layer to nothing.
type differing struct{ diff.Comparer }

func (differing) Apply(context.Context, imagespec.Descriptor, []mount.Mount, ...diff.ApplyOpt) (imagespec.Descriptor, error) {
	return imagespec.Descriptor{Size: 1}, nil
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
	mounts := map[string][]mount.Mount{
		"of the first layer": {{Type: "bind", Source: t.TempDir(), Options: []string{"rw", "rbind"}}},
		"of others": {{Type: "overlay", Source: "overlay", Options: []string{
			"workdir=/none", "upperdir=" + t.TempDir(), "lowerdir=/none:/none2", "index=off"}}},
	}
	for _, noSync := range []bool{false, true} {
		registry.Reset()
		registry.Register(&plugin.Registration{Type: plugins.DiffPlugin, ID: "test", InitFn: func(*plugin.InitContext) (any, error) {
			return differing{}, nil
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
		for what, to := range mounts {
			apply := func() error {
				done, err := made.(diff.Applier).Apply(t.Context(), imagespec.Descriptor{}, to, diff.WithSyncFs(false))
				if err == nil && done.Size != 1 {
					t.Errorf("%s, without sync %v: applied %+v", what, noSync, done)
				}
				return err
			}
			if err := apply(); err != nil {
				t.Errorf("%s, without sync %v: %v", what, noSync, err)
			}
			if err := test.WithoutSync(t, apply); errors.Is(err, unix.EIO) == noSync || noSync && err != nil {
				t.Errorf("%s, without sync %v, on a disk that refuses each sync: %v", what, noSync, err)
			}
		}
	}
	if _, err := replaced((&plugin.Registration{InitFn: func(*plugin.InitContext) (any, error) { return 1, nil }}).InitFn,
		func(d differ) differ { return d })(nil); err == nil {
		t.Error("a plugin of another type is taken")
	}
}
