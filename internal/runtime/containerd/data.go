package containerd

import (
	"context"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
)

// RemovePod implements runtime.Driver. It removes the image volumes, the cgroups and the sandbox
// records of the revision.
func (r *Runtime) RemovePod(ctx context.Context, _ pod.Key, uid pod.UID) error {
	if err := layout.CheckUID(uid); err != nil {
		return err
	}
	ctx = r.client.Context(ctx)
	if err := r.Hide(ctx, uid); err != nil {
		return err
	}
	if err := r.removeCgroups(ctx, uid); err != nil {
		return err
	}
	r.sizes.Drop(uid)
	return r.records.RemoveAll(ctx, uid)
}
