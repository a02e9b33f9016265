package containerd

import (
	"context"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
)

// RemoveData implements runtime.Data. The manifest goes last, so that what is cut off is found again.
// With something still mounted inside, nothing is removed: it might be a user's.
func (r *Runtime) RemoveData(ctx context.Context, key pod.Key, uid pod.UID) error {
	if err := layout.CheckUID(uid); err != nil {
		return err
	}
	ctx = r.client.Context(ctx)
	if err := r.Hide(ctx, uid); err != nil {
		return err
	}
	if err := r.NotMounted(key, uid); err != nil {
		return err
	}
	if err := r.removeCgroups(ctx, uid); err != nil {
		return err
	}
	r.sizes.Drop(uid)
	if err := r.dropRecords(ctx, uid); err != nil {
		return err
	}
	if err := r.Sandboxes.Sweep(ctx); err != nil {
		return err
	}
	return r.Files.RemoveData(ctx, key, uid)
}
