package cmd

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/cli/stream"
)

func attachCommand(a *app) *cobra.Command {
	var f flags.Container
	var detachKeys string
	c := &cobra.Command{
		Use:     "attach POD [-c CONTAINER] [-it]",
		Short:   "Attach to a running container",
		Long:    stream.AttachHelp,
		Example: "  podrun attach web\n  podrun attach -it console -c app\n  podrun attach -i load < data.sql",
		Args:    argCount(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			keys, err := stream.ParseKeys(detachKeys)
			if err != nil {
				return usage(c, err)
			}
			p, err := a.pods().AnyNamed(f.Namespace, args[0])
			if err != nil {
				return err
			}
			r, err := query.Container(a.ErrOut, p, f.Container)
			if err != nil {
				return err
			}
			if f.Stdin {
				if err := cli.NeedRoot(c.CommandPath()); err != nil {
					return err
				}
			}
			return stream.Attach(c.Context(), stream.AttachOptions{
				Streams: a.Streams, Dirs: a.Dirs(), Log: a.log, Pod: p, Role: r, Stdin: f.Stdin, TTY: f.TTY, Keys: keys,
				Connect: func(ctx context.Context) (stream.Attacher, io.Closer, error) {
					conn, err := a.connect(ctx)
					if err != nil {
						return nil, nil, err
					}
					return conn.Driver, conn, nil
				},
			})
		},
		ValidArgsFunction: a.completePods,
	}
	f.Add(c.Flags(), "pass standard input to the container",
		"standard input is a terminal; detected without this flag if the container has tty: true")
	c.Flags().StringVar(&detachKeys, "detach-keys", "ctrl-p,ctrl-q",
		"keys to detach from a container's terminal: characters, or ctrl- and a character; empty: none")
	a.completeFlags(c)
	return c
}
