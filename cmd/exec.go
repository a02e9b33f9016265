package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/runtime"
)

type execFlags struct {
	namespace, container string
	stdin, tty           bool
}

func (a *app) execCommand() *cobra.Command {
	var f execFlags
	c := &cobra.Command{
		Use:   "exec POD [-c CONTAINER] [-it] -- COMMAND [ARG...]",
		Short: "Run a command in a container",
		Long: "exec runs a command in a running container and exits with the exit code of the command. A restart\n" +
			"of containerd does not end the command.",
		Example: "  podrun exec web -- cat /etc/hosts\n  podrun exec -it web -c app -- sh\n" +
			"  podrun exec -i db -- psql < dump.sql",
		RunE: func(c *cobra.Command, args []string) error {
			switch dash := c.ArgsLenAtDash(); {
			case dash < 0:
				return usage(c, errors.New("give the command after --"))
			case dash != 1:
				return usage(c, fmt.Errorf("give one pod before --, not %d", dash))
			case len(args) == dash:
				return usage(c, errors.New("give a command after --"))
			}
			return a.exec(c, f, args[0], args[1:])
		},
	}
	c.Flags().StringVarP(&f.namespace, "namespace", "n", "default", "namespace of the pod")
	c.Flags().StringVarP(&f.container, "container", "c", "",
		"container name (default: the pod's default container, else its first)")
	c.Flags().BoolVarP(&f.stdin, "stdin", "i", false, "pass standard input to the command")
	c.Flags().BoolVarP(&f.tty, "tty", "t", false, "allocate a terminal for the command")
	c.ValidArgsFunction = a.completePods
	a.completeFlags(c)
	return c
}

func (a *app) exec(c *cobra.Command, f execFlags, name string, command []string) error {
	if err := cli.NeedRoot(c.CommandPath()); err != nil {
		return err
	}
	p, err := a.pods().Named(f.namespace, name)
	if err != nil {
		return err
	}
	r, err := query.Container(a.ErrOut, p, f.container)
	if err != nil {
		return err
	}
	if r.Status == nil || r.Status.State.Running == nil || r.Status.ContainerID == "" {
		return fmt.Errorf("container %q in pod %q is not running", r.Container.Name, p.Name)
	}
	conn, err := a.connect(c.Context())
	if err != nil {
		return err
	}
	defer conn.Close()
	code, err := a.execIn(c.Context(), conn.Driver, r.InstanceID(), command, f)
	switch {
	case errors.Is(err, runtime.ErrNotFound):
		return fmt.Errorf("container %q in pod %q is not running any more", r.Container.Name, p.Name)
	case errors.Is(err, syscall.EPIPE):
		return &cli.Error{Code: cli.ExitBrokenPipe}
	case err != nil:
		return err
	case code != 0:
		fmt.Fprintf(a.ErrOut, "command terminated with exit code %d\n", code)
		return &cli.Error{Code: code}
	}
	return nil
}

// execIn runs the command with the standard streams that the flags select, and returns its exit
// code.
func (a *app) execIn(ctx context.Context, e runtime.Execer, id string, command []string, f execFlags) (int, error) {
	// Without a handler, Go terminates this process at SIGPIPE, when the reader of the output has
	// closed it. The command in the container would go on running.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	streams := runtime.ExecIO{Stdout: a.Out, Stderr: a.ErrOut}
	if f.stdin {
		streams.Stdin = a.In
	}
	if !f.tty {
		return e.Exec(ctx, id, command, streams)
	}
	terminal := cli.TerminalOf(a.In)
	if terminal == nil {
		fmt.Fprintln(a.ErrOut, "Unable to use a TTY: standard input is not a terminal")
		return e.Exec(ctx, id, command, streams)
	}
	streams.TTY = true
	sizes, giveBack, err := lend(ctx, terminal, f.stdin)
	if err != nil {
		return 0, err
	}
	defer giveBack()
	streams.Size, streams.Resize = sizeOf(terminal), sizes
	return e.Exec(ctx, id, command, streams)
}
