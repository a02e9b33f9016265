package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/moby/term"
	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/cli/summary"
	"podrun.io/podrun/internal/containerlog"
	"podrun.io/podrun/internal/runtime"
)

type attachFlags struct {
	namespace, container, detachKeys string
	stdin, tty                       bool
}

func (a *app) attachCommand() *cobra.Command {
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
			return a.attach(c.Context(), p, r, f, keys)
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

func (a *app) attach(ctx context.Context, p *v1.Pod, r summary.Role, f attachFlags, keys []byte) error {
	name := r.Container.Name
	switch {
	case r.Status == nil || r.Status.State.Running == nil:
		return fmt.Errorf("container %q in pod %q is not running", name, p.Name)
	case f.stdin && !r.Container.Stdin:
		return &cli.Error{
			Code: cli.ExitFailed,
			Err: fmt.Errorf("container %q in pod %q has no standard input: its manifest does not say stdin: true",
				name, p.Name),
			Hint: "podrun exec -it " + query.ShortName(p) + " -c " + name + " -- sh runs a shell in it",
		}
	case f.tty && !r.Container.TTY:
		fmt.Fprintf(a.ErrOut, "Unable to use a TTY: container %s has none\n", name)
	}
	inst, err := query.Instance(p, r, false)
	if err != nil {
		return err
	}
	live, err := containerlog.OpenLive(a.dirs(), inst)
	if err != nil {
		return err
	}
	defer live.Close()
	output := func(ctx context.Context) error { return live.Copy(ctx, a.Out, a.ErrOut, a.log) }
	if !f.stdin {
		return output(ctx)
	}
	conn, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	s := session{app: a, runtime: conn.Driver, id: r.InstanceID(), container: r.Container, output: output, keys: keys}
	err = s.run(ctx)
	switch {
	case errors.Is(err, errDetached):
		fmt.Fprintf(a.ErrOut, "\nDetached; podrun attach -it %s -c %s attaches again\n", query.ShortName(p), name)
		return nil
	case errors.Is(err, runtime.ErrNoStdin):
		return &cli.Error{
			Code: cli.ExitFailed,
			Err: fmt.Errorf("the standard input of container %q in pod %q is closed: "+
				"its manifest says stdinOnce: true, and a former attach has ended", name, p.Name),
		}
	case errors.Is(err, runtime.ErrNotFound):
		return fmt.Errorf("container %q in pod %q is not running any more", name, p.Name)
	}
	return err
}

// session is one attachment of the user's standard input to the standard input of a container.
type session struct {
	app       *app
	runtime   runtime.Attacher
	id        string
	container *v1.Container
	// output copies the container's output until the output or the context ends.
	output func(context.Context) error
	keys   []byte
}

// errDetached ends a session in which the user has typed the detach keys.
var errDetached = errors.New("detached")

// answerTime is how long a session goes on printing the container's output after the end of
// standard input.
const answerTime = 300 * time.Millisecond

// run attaches until the container exits, ctx ends or the user types the detach keys. It also
// returns shortly after the end of standard input, unless that closes the container's input.
func (s *session) run(ctx context.Context) error {
	to, err := s.runtime.OpenStdin(ctx, s.id)
	if err != nil {
		return err
	}
	defer to.Close()
	in := s.app.In
	if terminal := cli.TerminalOf(in); terminal != nil && s.container.TTY {
		giveBack, err := s.acquireTerminal(ctx, terminal)
		if err != nil {
			return err
		}
		defer giveBack()
		if len(s.keys) > 0 {
			in = term.NewEscapeProxy(in, s.keys)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// run does not wait for this goroutine, because nothing can interrupt a read from the user's
	// terminal.
	go func() {
		if why := s.input(to, in); why != nil {
			cancel(why)
		}
	}()
	err = s.output(ctx)
	if errors.Is(err, context.Canceled) {
		err = context.Cause(ctx)
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// input copies in to the container. It returns the reason to end the session, or nil if the session
// goes on.
func (s *session) input(to io.WriteCloser, in io.Reader) error {
	_, err := io.Copy(to, in)
	escape := term.EscapeError{}
	if errors.As(err, &escape) {
		return errDetached
	}
	// Any other error comes from the side of the container, which reads no more. The end of its
	// output then ends the session.
	_ = to.Close()
	if err != nil || s.container.StdinOnce && !s.container.TTY {
		return nil
	}
	time.Sleep(answerTime)
	return io.EOF
}

// acquireTerminal connects the user's terminal to the container: it sets raw mode and passes on
// changes of the size. Programs redraw the screen when the size changes, so acquireTerminal first
// sets a different size and then the right one. giveBack restores the terminal.
func (s *session) acquireTerminal(ctx context.Context, terminal *os.File) (giveBack func(), err error) {
	if size := sizeOf(terminal); size != (runtime.TermSize{}) {
		other := size
		other.Height++
		s.resize(ctx, other)
		s.resize(ctx, size)
	}
	ctx, cancel := context.WithCancel(ctx)
	sizes, restore, err := lend(ctx, terminal, true)
	if err != nil {
		cancel()
		return nil, err
	}
	resized := make(chan struct{})
	go func() {
		defer close(resized)
		for {
			select {
			case size := <-sizes:
				s.resize(ctx, size)
			case <-ctx.Done():
				return
			}
		}
	}()
	fmt.Fprint(s.app.ErrOut, "If you don't see a command prompt, try pressing enter.\r\n")
	return func() {
		cancel()
		<-resized
		restore()
	}, nil
}

// resize sets the size of the container's terminal. A failure is logged and does not end the
// session.
func (s *session) resize(ctx context.Context, size runtime.TermSize) {
	if err := s.runtime.ResizeTerminal(ctx, s.id, size); err != nil {
		s.app.log.Debug("resizing the terminal of a container failed", "err", err)
	}
}
