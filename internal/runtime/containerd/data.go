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
	if err := r.cgroups.Remove(ctx, uid); err != nil {
		return err
	}
	return r.records.RemoveAll(ctx, uid)
}
