package instance

import (
	"context"
	"os"

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

// EmptyStdin is the standard input, for runc's shim, of a process that has none: the shim copies it
// to a pipe, so that the process sees the end of its input at once. Without it the shim would open
// the machine's own /dev/null and pass it on, and a process could change its mode or its owner.
const EmptyStdin = os.DevNull

// HasStdin reports whether a process has a standard input, given its path for the shim.
func HasStdin(path string) bool { return path != "" && path != EmptyStdin }
