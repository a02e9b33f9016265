package cmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/cli/stream"
)

func execCommand(a *app) *cobra.Command {
	var f flags.Container
	c := &cobra.Command{
		Use:   "exec POD [-c CONTAINER] [-it] -- COMMAND [ARG...]",
		Short: "Run a command in a container",
		Long: "exec runs a command in a running container and exits with the exit code of the command. A restart\n" +
			"of containerd does not end the command.",
		Example: "  podrun exec web -- cat /etc/hosts\n  podrun exec -it web -c app -- sh\n" +
			"  podrun exec -i db -- psql < dump.sql",
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
	if err := cli.NeedRoot(c.CommandPath()); err != nil {
		return err
	}
	p, err := a.pods().Named(f.Namespace, name)
	if err != nil {
		return err
	}
	r, err := query.Container(a.ErrOut, p, f.Container)
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
	return stream.Exec(c.Context(), conn.Driver, p, r, stream.Command{
		Streams: a.Streams, ID: r.InstanceID(), Args: command, Stdin: f.Stdin, TTY: f.TTY,
	})
}
