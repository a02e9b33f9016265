package cmd

import (
	"context"
	"fmt"
	"io"

	"github.com/moby/term"
	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/cli/stream"
)

type attachFlags struct {
	namespace, container, detachKeys string
	stdin, tty                       bool
}

func attachCommand(a *app) *cobra.Command {
	var f attachFlags
	c := &cobra.Command{
		Use:   "attach POD [-c CONTAINER] [-it]",
		Short: "Attach to a running container",
		Long: "attach prints what a running container writes from now on, its standard error to standard error.\n" +
			"It exits when the container exits. Interrupting attach does not affect the container.\n\n" +
			"With -i, attach passes standard input to a container whose manifest says stdin: true. It exits at\n" +
			"the end of standard input, and the container's input stays open for the next attach. With\n" +
			"stdinOnce: true the container's input is closed too, however attach ends, and attach prints the\n" +
			"rest of the output. With -it and a container with tty: true, keys and the size of the terminal are\n" +
			"passed to the container; the detach keys detach from it.\n\n" +
			"To run a shell in a running container, use podrun exec -it.",
		Example: "  podrun attach web\n  podrun attach -it console -c app\n  podrun attach -i load < data.sql",
		Args:    argCount(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			keys, err := detachKeys(f.detachKeys)
			if err != nil {
				return usage(c, err)
			}
			p, err := a.pods().Named(f.namespace, args[0])
			if err != nil {
				return err
			}
			r, err := query.Container(a.ErrOut, p, f.container)
			if err != nil {
				return err
			}
			if f.stdin {
				if err := cli.NeedRoot(c.CommandPath()); err != nil {
					return err
				}
			}
			return stream.Attach(c.Context(), stream.AttachOptions{
				Streams: a.Streams, Dirs: a.Dirs(), Log: a.log, Pod: p, Role: r, Stdin: f.stdin, TTY: f.tty, Keys: keys,
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
	c.Flags().StringVarP(&f.namespace, "namespace", "n", "default", "namespace of the pod")
	c.Flags().StringVarP(&f.container, "container", "c", "",
		"container name (default: the pod's default container, else its first)")
	c.Flags().BoolVarP(&f.stdin, "stdin", "i", false, "pass standard input to the container")
	c.Flags().BoolVarP(&f.tty, "tty", "t", false,
		"standard input is a terminal; detected without this flag if the container has tty: true")
	c.Flags().StringVar(&f.detachKeys, "detach-keys", "ctrl-p,ctrl-q",
		"keys to detach from a container's terminal: characters, or ctrl- and a character; empty: none")
	a.completeFlags(c)
	return c
}

func detachKeys(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	keys, err := term.ToBytes(text)
	if err != nil {
		return nil, fmt.Errorf("--detach-keys %q: %w", text, err)
	}
	return keys, nil
}
