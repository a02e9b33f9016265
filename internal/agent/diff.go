package agent

import (
	"context"

	"podrun.io/podrun/internal/manifest"
)

// Diff returns what Serve would change on the pods that are on the machine now, and the desired set
// that this is based on. It needs no containerd and changes nothing, whether serve runs or not.
func Diff(ctx context.Context, o Options) ([]manifest.Change, manifest.Desired, error) {
	from := o.opener()
	from.CacheDir, from.CacheReadOnly = o.Dirs.Manifests(), true
	return from.Diff(ctx, o.Dirs)
}
