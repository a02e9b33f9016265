package cmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/cli/stream"
	"podrun.io/podrun/internal/pod"
)

func execCommand(a *app) *cobra.Command {
	var f flags.Container
	c := &cobra.Command{
		Use:     "exec POD [-c CONTAINER] [-it] -- COMMAND [ARG...]",
		Short:   "Run a command in a container",
		Long:    stream.ExecHelp,
		Example: stream.ExecExample,
		RunE: func(c *cobra.Command, args []string) error {
			switch dash := c.ArgsLenAtDash(); {
			case dash < 0 && len(args) < 2:
				return usage(c, errors.New("give the command after --"))
			case dash < 0: // kubectl's former form
				cli.Warnf(a.ErrOut, "podrun exec POD COMMAND is deprecated: use %s", f.Exec(args))
				return runExec(a, c, f, args[0], args[1:])
			case dash != 1:
				return usage(c, fmt.Errorf("give one pod before --, not %d", dash))
			case len(args) == dash:
				return usage(c, errors.New("give a command after --"))
			}
			return runExec(a, c, f, args[0], args[1:])
		},
	}
	f.Add(c.Flags(), "pass standard input to the command", "allocate a terminal for the command")
	c.ValidArgsFunction = a.completePods
	a.completeFlags(c)
	return c
}

func runExec(a *app, c *cobra.Command, f flags.Container, name string, command []string) error {
	in, err := openContainer(a, c, a.pods().AnyNamed, pod.Key{Namespace: f.Namespace, Name: name}, f.Container)
	if err != nil {
		return err
	}
	defer in.Close()
	return stream.Exec(c.Context(), in, stream.Command{
		Streams: a.Streams, ID: in.Role.InstanceID(), Args: command, Stdin: f.Stdin, TTY: f.TTY,
	})
}

// openContainer finds a running container of the pod with a name, and connects to what runs it.
func openContainer(
	a *app, c *cobra.Command, find func(namespace, name string) (*v1.Pod, error), named pod.Key, container string,
) (in stream.Container, err error) {
	if err = cli.NeedRoot(c.CommandPath()); err != nil {
		return in, err
	}
	if in.Pod, err = find(named.Namespace, named.Name); err != nil {
		return in, err
	}
	if in.Role, err = query.Container(a.ErrOut, in.Pod, container); err != nil {
		return in, err
	}
	if !in.Runs() {
		return in, query.NotRunning(in.Pod, in.Role)
	}
	conn, err := a.connect(c.Context())
	if err == nil {
		in.Driver, in.Closer = conn.Driver, conn
	}
	return in, err
}
