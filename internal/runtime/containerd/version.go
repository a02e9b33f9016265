package containerd

import (
	"context"

	"podrun.io/podrun/internal/runtime/containerd/daemon"
)

// ServerVersion returns the version of the connected containerd.
func (r *Runtime) ServerVersion(ctx context.Context) (string, error) {
	v, err := r.client.Version(r.client.Context(ctx))
	if err != nil {
		return "", daemon.Mapped("asking containerd for its version", err)
	}
	return v.Version, nil
}
