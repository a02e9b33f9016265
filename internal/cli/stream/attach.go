package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/moby/term"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/containerlog"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/status/summary"
)

// Attacher attaches to containers.
type Attacher = runtime.Attacher

// AttachOptions are the options of Attach.
type AttachOptions struct {
	cli.Streams
	Dirs layout.Dirs
	Log  *slog.Logger

	Pod        *v1.Pod
	Role       summary.Role // the container of the pod
	Stdin, TTY bool
	Keys       []byte // detach from a terminal
	// Connect connects to the runtime. It is called only if Stdin is true.
	Connect func(context.Context) (Attacher, io.Closer, error)
}

// Attach prints what a container writes from now on, and passes standard input to it if o.Stdin is
// true, until the container exits, ctx ends or the user types the detach keys.
func Attach(ctx context.Context, o AttachOptions) error {
	p, r := o.Pod, o.Role
	name := r.Container.Name
	switch {
	case r.Status == nil || r.Status.State.Running == nil:
		return query.NotRunning(p, r)
	case o.Stdin && !r.Container.Stdin:
		return &cli.Error{
			Code: cli.ExitFailed,
			Err: fmt.Errorf("container %q in pod %q has no standard input: its manifest does not say stdin: true",
				name, p.Name),
			Hint: "podrun exec -it " + query.Target(p, name) + " -- sh runs a shell in it",
		}
	case o.TTY && !r.Container.TTY:
		fmt.Fprintf(o.ErrOut, "Unable to use a TTY: container %s has none\n", name)
	}
	inst, err := query.Instance(p, r, false)
	if err != nil {
		return err
	}
	live, err := containerlog.OpenLive(o.Dirs, inst)
	if err != nil {
		return err
	}
	defer live.Close()
	output := func(ctx context.Context) error { return live.Copy(ctx, o.Out, o.ErrOut, o.Log) }
	if !o.Stdin {
		return output(ctx)
	}
	attacher, conn, err := o.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	s := session{AttachOptions: o, runtime: attacher, output: output}
	err = s.run(ctx)
	switch {
	case errors.Is(err, errDetached):
		fmt.Fprintf(o.ErrOut, "\nDetached; podrun attach -it %s attaches again\n", query.Target(p, name))
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
	AttachOptions
	runtime runtime.Attacher
	// output copies the container's output until the output or the context ends.
	output func(context.Context) error
}

// errDetached ends a session in which the user has typed the detach keys.
var errDetached = errors.New("detached")

// answerTime is how long a session goes on printing the container's output after the end of
// standard input.
const answerTime = 300 * time.Millisecond

// run attaches until the container exits, ctx ends or the user types the detach keys. It also
// returns shortly after the end of standard input, unless that closes the container's input.
func (s *session) run(ctx context.Context) error {
	to, err := s.runtime.OpenStdin(ctx, s.Role.InstanceID())
	if err != nil {
		return err
	}
	defer to.Close()
	in := s.In
	if terminal := cli.TerminalOf(in); terminal != nil && s.Role.Container.TTY {
		restore, err := s.acquireTerminal(ctx, terminal)
		if err != nil {
			return err
		}
		defer restore()
		if len(s.Keys) > 0 {
			in = term.NewEscapeProxy(in, s.Keys)
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
	if err != nil || s.Role.Container.StdinOnce && !s.Role.Container.TTY {
		return nil
	}
	time.Sleep(answerTime)
	return io.EOF
}

// acquireTerminal connects the user's terminal to the container: it sets raw mode and passes on
// changes of the size. Programs redraw the screen when the size changes, so acquireTerminal first
// sets a different size and then the right one. release restores the terminal.
func (s *session) acquireTerminal(ctx context.Context, terminal *os.File) (release func(), err error) {
	if size := sizeOf(terminal); size != (runtime.TermSize{}) {
		other := size
		other.Height++
		s.resize(ctx, other)
		s.resize(ctx, size)
	}
	ctx, cancel := context.WithCancel(ctx)
	sizes, restore, err := attachTerminal(ctx, terminal, true)
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
	fmt.Fprint(s.ErrOut, "If you don't see a command prompt, try pressing enter.\r\n")
	return func() {
		cancel()
		<-resized
		restore()
	}, nil
}

// resize sets the size of the container's terminal. A failure is logged and does not end the
// session.
func (s *session) resize(ctx context.Context, size runtime.TermSize) {
	if err := s.runtime.ResizeTerminal(ctx, s.Role.InstanceID(), size); err != nil {
		s.Log.Debug("resizing the terminal of a container failed", "err", err)
	}
}
