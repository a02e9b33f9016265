package instance

import (
	"context"

	"github.com/containerd/containerd/api/services/tasks/v1"

	"podrun.io/podrun/internal/runtime/containerd/daemon"
)

// CloseStdin makes the shim close its own end of an instance's standard input. It may be repeated.
func CloseStdin(ctx context.Context, c *daemon.Client, id string) error {
	_, err := c.TaskService().CloseIO(ctx, &tasks.CloseIORequest{ContainerID: id, Stdin: true})
	if daemon.IsGone(err) {
		return nil
	}
	return daemon.Mapped("closing the standard input of "+id, err)
}
