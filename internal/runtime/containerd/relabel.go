package containerd

import (
	"context"
	"fmt"
	"strings"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// relabel sets the label of the container's files on those mounts that are podrun's own. It leaves
// the host's files alone, as the kubelet does.
func (r *Runtime) relabel(ctx context.Context, mounts []pod.Mount, files string) error {
	if files == "" {
		return nil
	}
	for _, m := range mounts {
		if !strings.HasPrefix(m.HostPath, r.Dirs.Root+"/") && !strings.HasPrefix(m.HostPath, r.Dirs.Run+"/") {
			continue
		}
		if err := sys.LabelTree(ctx, m.HostPath, files); err != nil {
			return fmt.Errorf("labelling %s: %w", m.HostPath, err)
		}
	}
	return nil
}
