package embedded

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/plugins/snapshots/overlay/overlayutils"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/shortage"
)

const (
	overlayfs = "overlayfs"
	native    = "native"
)

// Snapshotter returns the name of the snapshotter for the daemon's disk: overlayfs, or native,
// which copies files, where overlayfs cannot be mounted. The daemon chooses at each start; an error
// means that none has started yet.
func Snapshotter(d layout.Dirs) (string, error) {
	b, err := os.ReadFile(snapshotterFile(d))
	if err != nil {
		return "", fmt.Errorf("reading the snapshotter's name: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

func snapshotterFile(d layout.Dirs) string { return filepath.Join(d.Embedded().State(), "snapshotter") }

// chooseSnapshotter tries to mount overlayfs and records the result for Snapshotter. It is not
// enough that the kernel supports overlayfs: in a container whose own root is an overlay, the
// kernel has it but cannot mount another one on that disk. A full disk proves nothing, and copies
// would need more of it.
func chooseSnapshotter(o Options) (string, error) {
	name := overlayfs
	err := overlayutils.Supported(filepath.Join(o.Dirs.Embedded().Data(), "io.containerd.snapshotter.v1.overlayfs"))
	switch {
	case shortage.Is(err):
		o.Log.Warn("whether overlayfs can be used is not known; it is assumed", "dir", o.Dirs.Embedded().Data(), "err", err)
	case err != nil:
		name = native
		o.Log.Warn("overlayfs cannot be used: images and containers will be copied",
			"dir", o.Dirs.Embedded().Data(), "err", err)
	}
	return name, sys.WriteFile(snapshotterFile(o.Dirs), []byte(name+"\n"), 0o644)
}
