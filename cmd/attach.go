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
		Short: "See and write to what a container runs",
		Long: "attach prints what a running container writes from now on, its standard error to standard error, and ends\n" +
			"when the container does. To interrupt it leaves the container alone.\n\n" +
			"With -i it passes standard input on to a container whose manifest says stdin: true. At its end attach does\n" +
			"too, and the container reads on with the next one that attaches; with stdinOnce: true the container's\n" +
			"input ends as well, whatever ends attach, and attach stays for the rest of the output. With -it and a\n" +
			"container that says tty: true, keys and the terminal's size go to the container; the detach keys leave it.\n\n" +
			"To run a shell beside what a container runs use podrun exec -it.",
		Example: "  podrun attach web\n  podrun attach -it console -c app\n  podrun attach -i load < data.sql",
		Args:    argCount(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			keys, err := detachKeys(f.detachKeys)
			if err != nil {
				return usage(c, err)
			}
			p, err := a.podNamed(f.namespace, args[0])
			if err != nil {
				return err
			}
			r, err := a.choose(p, f.container)
			if err != nil {
				return err
			}
			if f.stdin {
				if err := needRoot(c); err != nil {
					return err
				}
			}
			return a.attach(c.Context(), p, r, f, keys)
		},
		ValidArgsFunction: a.completePods,
	}
	c.Flags().StringVarP(&f.namespace, "namespace", "n", "default", "the pod's namespace")
	c.Flags().StringVarP(&f.container, "container", "c", "", "the container (default: the pod's first)")
	c.Flags().BoolVarP(&f.stdin, "stdin", "i", false, "pass standard input to the container")
	c.Flags().BoolVarP(&f.tty, "tty", "t", false, "standard input is a terminal; so it is taken anyway where the container has one")
	c.Flags().StringVar(&f.detachKeys, "detach-keys", "ctrl-p,ctrl-q", "keys that leave a container's terminal: characters, or ctrl- and one; empty: none")
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

func (a *app) attach(ctx context.Context, p *v1.Pod, r cli.Role, f attachFlags, keys []byte) error {
	name := r.Container.Name
	switch {
	case r.Status == nil || r.Status.State.Running == nil:
		return fmt.Errorf("container %q in pod %q is not running", name, p.Name)
	case f.stdin && !r.Container.Stdin:
		return &failure{code: exitFailed, err: fmt.Errorf("container %q in pod %q has no standard input: its manifest does not say stdin: true", name, p.Name),
			hint: "podrun exec -it " + shortName(p) + " -c " + name + " -- sh runs a shell in it"}
	case f.tty && !r.Container.TTY:
		fmt.Fprintf(a.errOut, "Unable to use a TTY: container %s has none\n", name)
	}
	inst, err := instance(p, r, false)
	if err != nil {
		return err
	}
	live, err := containerlog.OpenLive(a.dirs(), inst)
	if err != nil {
		return err
	}
	defer live.Close()
	output := func(ctx context.Context) error { return live.Copy(ctx, a.out, a.errOut, a.log) }
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
		fmt.Fprintf(a.errOut, "\nDetached; podrun attach -it %s -c %s attaches again\n", shortName(p), name)
		return nil
	case errors.Is(err, runtime.ErrNoStdin):
		return &failure{code: exitFailed, err: fmt.Errorf("the standard input of container %q in pod %q has been closed: it says stdinOnce, and who was attached has gone", name, p.Name)}
	case errors.Is(err, runtime.ErrNotFound):
		return fmt.Errorf("container %q in pod %q is not running any more", name, p.Name)
	}
	return err
}

// session is one person, or pipe, attached to a container's standard input.
type session struct {
	app       *app
	runtime   runtime.Attacher
	id        string
	container *v1.Container
	// output passes the container's output on until that, or its context, ends.
	output func(context.Context) error
	keys   []byte
}

// errDetached ends a session by its detach keys.
var errDetached = errors.New("detached")

// answerTime is how long a session whose input has ended waits for what the container says to it.
const answerTime = 300 * time.Millisecond

// run ends when the container does, when ctx ends, at the detach keys, and, unless the container's input
// ends with it, soon after the end of standard input.
func (s *session) run(ctx context.Context) error {
	to, err := s.runtime.OpenStdin(ctx, s.id)
	if err != nil {
		return err
	}
	defer to.Close()
	in := s.app.in
	if terminal := terminalOf(in); terminal != nil && s.container.TTY {
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
	// It is not waited for: nothing ends a read of a person's terminal.
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

// input passes in on, and returns why the session is to end; nil: not yet.
func (s *session) input(to io.WriteCloser, in io.Reader) error {
	_, err := io.Copy(to, in)
	escape := term.EscapeError{}
	if errors.As(err, &escape) {
		return errDetached
	}
	// Any other failure is the container's: it reads no more, and how that ends is seen by its output.
	_ = to.Close()
	if err != nil || s.container.StdinOnce && !s.container.TTY {
		return nil
	}
	time.Sleep(answerTime)
	return io.EOF
}

// acquireTerminal gives the person's terminal to the container, which draws anew when the size changes: so
// first it is told another one.
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
	fmt.Fprint(s.app.errOut, "If you don't see a command prompt, try pressing enter.\r\n")
	return func() {
		cancel()
		<-resized
		restore()
	}, nil
}

// resize tells the container its terminal's size. That it cannot be told ends no session.
func (s *session) resize(ctx context.Context, size runtime.TermSize) {
	if err := s.runtime.ResizeTerminal(ctx, s.id, size); err != nil {
		s.app.log.Debug("a terminal was not resized", "why", err)
	}
}
