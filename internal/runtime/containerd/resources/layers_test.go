package resources

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/treetest"
)

// deepLayer is a snapshotter whose snapshot it cannot measure, as containerd's walks it by paths.
type deepLayer struct {
	snapshots.Snapshotter
	upper string
}

func (l deepLayer) Mounts(context.Context, string) ([]mount.Mount, error) {
	return []mount.Mount{{Type: "overlay", Source: "overlay", Options: []string{"workdir=/work", "upperdir=" + l.upper, "lowerdir=/lower"}}}, nil
}

func (deepLayer) Usage(context.Context, string) (snapshots.Usage, error) {
	return snapshots.Usage{}, unix.ENAMETOOLONG
}

// TestDeepLayer: directories so deep that their path is longer than the kernel accepts.
func TestDeepLayer(t *testing.T) {
	const depth, written = 3000, 1 << 20
	upper := filepath.Join(t.TempDir(), "upper")
	if err := errors.Join(os.Mkdir(upper, 0o700), os.WriteFile(filepath.Join(upper, "x"), make([]byte, written), 0o600)); err != nil {
		t.Fatal(err)
	}
	treetest.Deep(t, upper, depth)
	used, err := layerUsage(treetest.Timely(t), deepLayer{upper: upper}, "key")
	if err != nil || used.Files != 3*depth+2 || used.Bytes < written {
		t.Errorf("measured %+v, %v", used, err)
	}
	if err := sys.RemoveTree(treetest.Timely(t), upper); err != nil {
		t.Error(err)
	}
}
