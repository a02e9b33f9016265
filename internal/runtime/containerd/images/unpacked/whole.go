package unpacked

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"

	"podrun.io/podrun/internal/runtime/containerd/daemon"
)

// ErrNotStored means that an image can run, because its layers are unpacked, but that what they were
// unpacked from is not stored: containerd does not fetch a layer that it has unpacked already for
// another image or for a container.
var ErrNotStored = errors.New("its layers are unpacked, but not stored")

// CheckStored returns ErrNotStored unless everything of which an image for this machine's platform consists is stored.
func CheckStored(ctx context.Context, c *daemon.Client, i images.Image) error {
	_, _, _, missing, err := images.Check(ctx, Archived(c.ContentStore()), i.Target, platforms.Default())
	if err != nil {
		return daemon.Mapped("reading image "+Quoted(i.Name), err)
	}
	if len(missing) > 0 {
		return fmt.Errorf("image %s: %w: %s is missing", Quoted(i.Name), ErrNotStored, missing[0].Digest)
	}
	return nil
}
