package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/status/summary"
)

// Command is a command that runs in a container.
type Command struct {
	cli.Streams
	ID         string // of the container's instance
	Args       []string
	Stdin, TTY bool
}

// Driver runs commands in containers, and says what runs in them.
type Driver interface {
	runtime.Execer
	InspectContainers(ctx context.Context, key pod.Key, ids []string) ([]pod.Container, error)
	WorkingDir(ctx context.Context, id string) (string, error)
}

// Container is a container of a pod, and the connection to what runs it.
type Container struct {
	io.Closer
	Pod    *v1.Pod
	Role   summary.Role
	Driver Driver
}

// Runs reports that the container runs, by the pod's status.
func (in Container) Runs() bool {
	s := in.Role.Status
	return s != nil && s.State.Running != nil && s.ContainerID != ""
}

// Exec runs a command in a container. If the command fails, the error has its exit code.
func Exec(ctx context.Context, in Container, c Command) error {
	code, err := c.Run(ctx, in.Driver)
	switch {
	case errors.Is(err, runtime.ErrNotFound):
		return fmt.Errorf("container %q in pod %q is not running any more", in.Role.Container.Name, in.Pod.Name)
	case errors.Is(err, syscall.EPIPE):
		return &cli.Error{Code: cli.ExitBrokenPipe}
	case err != nil:
		return err
	case code != 0:
		fmt.Fprintf(c.ErrOut, "command terminated with exit code %d\n", code)
		return &cli.Error{Code: code}
	}
	return nil
}

// Run runs the command with the standard streams that it is to have, and returns its exit code.
func (c Command) Run(ctx context.Context, e runtime.Execer) (int, error) {
	// Without a handler, Go terminates this process at SIGPIPE, when the reader of the output has
	// closed it. The command in the container would go on running.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	streams := runtime.ExecIO{Stdout: c.Out, Stderr: c.ErrOut}
	if c.Stdin {
		streams.Stdin = c.In
	}
	if !c.TTY {
		return e.Exec(ctx, c.ID, c.Args, streams)
	}
	terminal := cli.TerminalOf(c.In)
	if terminal == nil {
		fmt.Fprintln(c.ErrOut, "Unable to use a TTY: standard input is not a terminal")
		return e.Exec(ctx, c.ID, c.Args, streams)
	}
	streams.TTY = true
	sizes, restore, err := attachTerminal(ctx, terminal, c.Stdin)
	if err != nil {
		return 0, err
	}
	defer restore()
	streams.Size, streams.Resize = sizeOf(terminal), sizes
	return e.Exec(ctx, c.ID, c.Args, streams)
}
