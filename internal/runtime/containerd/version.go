package containerd

import "context"

// ServerVersion returns the version of the containerd that is connected to.
func (r *Runtime) ServerVersion(ctx context.Context) (string, error) {
	v, err := r.client.Version(r.context(ctx))
	if err != nil {
		return "", mapped("asking containerd for its version", err)
	}
	return v.Version, nil
}
