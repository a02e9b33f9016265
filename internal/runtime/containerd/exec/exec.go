// Package exec runs commands in containers (Execer). It also opens the standard input of a
// container's own process and resizes its terminal, for attach (Attacher).
//
// It does not read the output of that process: package containerlog does. It creates no container
// and does not know why a command is run: for the user, a probe or a hook.
//
// Begin reading at Execer and Attacher.
package exec

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/opencontainers/runtime-spec/specs-go"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/instance"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/activity"
	"podrun.io/podrun/internal/sys/pipes"
	"podrun.io/podrun/internal/sys/stdin"
)

// drainTimeout bounds the wait for output after an exec'd command has exited: a child that the
// command left behind may keep the output open for ever. Time in which output is being written does
// not count, because whoever reads it may be slow. All other time does: the child may write for ever.
const drainTimeout = 2 * time.Second

// The shim too waits for the output before it removes a process. removeTime bounds the removal. If
// the output is known to be kept open, blockedTime bounds it.
const (
	removeTime  = 10 * time.Second
	blockedTime = time.Second
)

// ownTime bounds the wait for the shim to open the standard input of a process that it has just
// started.
const ownTime = 100 * time.Millisecond

// Options configure an Execer. All are required.
type Options struct {
	Client *daemon.Client
	Dirs   layout.Dirs
	Log    *slog.Logger
}

// Execer runs commands in containers. Its methods may be called concurrently.
type Execer struct {
	client *daemon.Client
	pipes  *pipes.Pipes
	dirs   layout.Dirs
	log    *slog.Logger
	// confinementChecked is set when exec is known to run commands inside the containers; see
	// confined.
	confinementChecked atomic.Bool
}

// NewExecer returns an Execer.
func NewExecer(o Options) *Execer {
	return &Execer{client: o.Client, pipes: pipes.New(o.Dirs.Fifos()), dirs: o.Dirs, log: o.Log}
}

// AdoptPipes opens the pipes of commands that a killed podrun has left: one that nobody reads may
// block a shim.
func (x *Execer) AdoptPipes() error { return x.pipes.Adopt() }

// ClosePipes closes the pipes of commands and removes the adopted directories.
func (x *Execer) ClosePipes() error { return x.pipes.Close() }

// Exec implements runtime.Execer.
func (x *Execer) Exec(ctx context.Context, id string, cmd []string, streams runtime.ExecIO) (int, error) {
	caller := ctx
	ctx, cut := context.WithCancelCause(x.client.Context(ctx))
	defer cut(nil)
	process, t, runc, err := x.target(ctx, id)
	if err != nil {
		return 0, daemon.Mapped("exec in "+id, err)
	}
	if err := x.confined(int(t.Pid())); err != nil {
		return 0, fmt.Errorf("exec in %s: %w", id, err)
	}
	output := &output{Writes: activity.Writes{Total: true}, cut: cut}
	streams.Stdout, streams.Stderr = output.writer(streams.Stdout), output.writer(streams.Stderr)
	process.Args, process.Terminal = cmd, streams.TTY
	ended, owned := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(owned) })
	defer release()
	if streams.Stdin != nil {
		// A reader of the process's output may be killed as soon as it gets output, and must not
		// leave the process behind: so no output is passed on before the process is certain to end
		// with podrun.
		streams.Stdout, streams.Stderr = &gated{streams.Stdout, owned}, &gated{streams.Stderr, owned}
	}
	dir, err := x.pipes.Dir()
	if err != nil {
		return 0, err
	}
	opts := []cio.Opt{
		cio.WithFIFODir(dir), cio.WithStreams(input(streams.Stdin, ended), streams.Stdout, streams.Stderr),
	}
	if streams.TTY {
		opts = append(opts, cio.WithTerminal)
		process.Env = oci.WithTerm(process.Env)
		if size := streams.Size; size != (runtime.TermSize{}) {
			process.ConsoleSize = &specs.Box{Width: uint(size.Width), Height: uint(size.Height)}
		}
	}
	creator := cio.NewCreator(opts...)
	if streams.Stdin == nil && !streams.TTY && runc {
		creator = withoutStdin(creator)
	}
	p, err := t.Exec(ctx, "exec-"+rand.Text(), process, output.abandonable(creator))
	if err != nil {
		return 0, daemon.Mapped("exec in "+id, err)
	}
	code, err := x.follow(ctx, command{id, p, streams, ended, release})
	limit := removeTime
	exited := err == nil
	if exited && !output.drain(ctx, p.IO()) {
		limit = blockedTime
	}
	if exited && (caller.Err() == nil || output.lost) {
		err = context.Cause(ctx) // a write has failed meanwhile, or was cut off
	}
	x.remove(ctx, p, id, exited, limit)
	return code, err
}

// WorkingDir returns the directory of a container in which its commands begin: that of its manifest or image, wherever
// its process is now.
func (x *Execer) WorkingDir(ctx context.Context, id string) (string, error) {
	process, _, _, err := x.target(x.client.Context(ctx), id)
	if err != nil {
		return "", daemon.Mapped("reading the spec of "+id, err)
	}
	return process.Cwd, nil
}

// confined returns an error if a command would run outside the container of the given process. It
// checks until one process is confined, and never again: all containers are started from the same
// root directory.
func (x *Execer) confined(pid int) error {
	if x.confinementChecked.Load() {
		return nil
	}
	hides, err := sys.RootHides(pid)
	if hides {
		return errors.New("containerd runs in a chroot, so the command would run in the machine's root directory: " +
			"enter that directory by pivot_root instead")
	}
	if err != nil {
		// As a rule the process has exited; then the start of the command returns the error.
		x.log.Debug("root directory of the container's process cannot be read", "err", err)
		return nil
	}
	x.confinementChecked.Store(true)
	return nil
}

// remove removes an exec'd process. It kills the process first unless dead is set.
func (x *Execer) remove(ctx context.Context, p client.Process, id string, dead bool, limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	var how []client.ProcessDeleteOpts
	if !dead { // has no effect on a process that never started
		how = append(how, client.WithProcessKill)
	}
	if _, err := p.Delete(ctx, how...); err != nil {
		x.abandon(p, id, err)
	}
}

// abandon removes the pipes of a process that could not be removed. As a rule the process was
// removed with its container.
func (x *Execer) abandon(p client.Process, id string, why error) {
	if daemon.IsNotFound(why) {
		why = nil
	}
	if streams := p.IO(); streams != nil {
		streams.Cancel()
		why = errors.Join(why, streams.Close())
	}
	if why != nil {
		x.log.Debug("exec'd process cannot be removed", "container", id, "err", why)
	}
}

// target returns the process of the instance's spec, on which a command that is to run in the
// instance is based, and the instance's task. Probes call it again and again, so it requests the
// record only once.
func (x *Execer) target(ctx context.Context, id string) (p *specs.Process, t client.Task, runc bool, err error) {
	c, err := x.client.LoadContainer(ctx, id)
	if err != nil {
		return nil, nil, false, err
	}
	record, err := c.Info(ctx, client.WithoutRefreshedMetadata)
	if err != nil {
		return nil, nil, false, err
	}
	if !instance.Ours(record) {
		return nil, nil, false, fmt.Errorf("container %s is not podrun's", id)
	}
	var spec struct {
		Process *specs.Process `json:"process"`
	}
	if err := json.Unmarshal(record.Spec.GetValue(), &spec); err != nil {
		return nil, nil, false, fmt.Errorf("reading the spec: %w", err)
	}
	if spec.Process == nil {
		return nil, nil, false, errors.New("the spec has no process")
	}
	if err := x.legacyWithheld(record, spec.Process); err != nil {
		return nil, nil, false, err
	}
	t, err = c.Task(ctx, nil)
	return spec.Process, t, instance.IsRunc(record.Runtime.Name), err
}

// gated is a writer that blocks until open is closed.
type gated struct {
	w    io.Writer
	open <-chan struct{}
}

func (g *gated) Write(p []byte) (int, error) {
	<-g.open
	return g.w.Write(p)
}

// command is an exec'd process.
type command struct {
	// id is the container's.
	id      string
	process client.Process
	streams runtime.ExecIO
	// inputEnded is closed at the end of what the process reads.
	inputEnded <-chan struct{}
	// owned is called once the process is certain to end with podrun, or its start has failed.
	owned func()
}

// follow starts the process in the container, serves it until it exits and returns its exit code.
func (x *Execer) follow(ctx context.Context, c command) (int, error) {
	p, streams, inputEnded := c.process, c.streams, c.inputEnded
	// Not ctx: when ctx ends, follow kills the process and waits for its exit.
	waiting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	exited := awaitExit(waiting, p)
	if err := x.start(ctx, c.id, p); err != nil {
		c.owned() // what it may have written is copied only then
		p.IO().Cancel()
		p.IO().Wait()
		p.IO().Close()
		return 0, daemon.Mapped("starting an exec'd process", err)
	}
	if streams.Started != nil {
		streams.Started()
	}
	in := x.ownStdin(ctx, p)
	defer in.Close() // in may be nil
	c.owned()
	for {
		select {
		case e := <-exited:
			if err := e.Error(); daemon.IsGone(err) { // the shim has exited with it
				return 0, fmt.Errorf("waiting for an exec'd process: %w: %w", runtime.ErrNotFound, err)
			} else if err != nil {
				return 0, daemon.Mapped("waiting for an exec'd process", err)
			}
			return int(e.ExitCode()), context.Cause(ctx)
		case <-inputEnded:
			inputEnded = nil
			in.Close()
			if in == nil {
				x.closeStdin(ctx, p)
			}
		case size, open := <-streams.Resize:
			if !open {
				streams.Resize = nil
				continue
			}
			if err := p.Resize(ctx, uint32(size.Width), uint32(size.Height)); err != nil && !daemon.IsNotFound(err) {
				x.log.Debug("terminal of an exec'd process cannot be resized", "err", err)
			}
		case <-ctx.Done():
			kill, stop := daemon.CleanupContext(ctx)
			err := p.Kill(kill, syscall.SIGKILL)
			stop()
			if err != nil && !daemon.IsNotFound(err) {
				return 0, errors.Join(context.Cause(ctx), daemon.Mapped("killing an exec'd process", err))
			}
			if e := <-exited; e.away { // it may have exited before ctx ended
				return 0, errors.Join(context.Cause(ctx), runtime.ErrUnavailable)
			}
			return 0, context.Cause(ctx)
		}
	}
}

// ownStdin makes this process the only one that keeps the exec'd process's standard input open. So
// the input ends with podrun, and a shell on a terminal is hung up, even if podrun is killed. It
// returns nil if that is not possible.
func (x *Execer) ownStdin(ctx context.Context, p client.Process) *os.File {
	streams := p.IO()
	if streams == nil || !instance.HasStdin(streams.Config().Stdin) {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, ownTime)
	defer cancel()
	in, err := stdin.Open(waiting, streams.Config().Stdin)
	if err != nil {
		return nil // as a rule the process has already exited or closed its input
	}
	x.closeStdin(ctx, p)
	return in
}

// closeStdin makes the shim close its own end of the process's standard input.
func (x *Execer) closeStdin(ctx context.Context, p client.Process) {
	if err := p.CloseIO(ctx, client.WithStdinCloser); err != nil && !daemon.IsNotFound(err) {
		x.log.Debug("standard input of an exec'd process cannot be closed", "err", err)
	}
}

// withoutStdin returns a creator of streams like creator's, for a process without standard input.
func withoutStdin(creator cio.Creator) cio.Creator {
	return func(id string) (cio.IO, error) {
		streams, err := creator(id)
		if err != nil {
			return nil, err
		}
		return &emptyStdin{streams}, nil
	}
}

// emptyStdin is the result of withoutStdin.
type emptyStdin struct{ cio.IO }

// Config implements cio.IO.
func (e *emptyStdin) Config() cio.Config {
	c := e.IO.Config()
	c.Stdin = instance.EmptyStdin
	return c
}

// input returns a reader of in that closes ended at the end of in. The shim keeps the process's
// standard input open until it is asked to close it.
func input(in io.Reader, ended chan<- struct{}) io.Reader {
	if in == nil {
		return nil
	}
	return &eofNotifier{in: in, ended: ended}
}

// eofNotifier is the reader that input returns.
type eofNotifier struct {
	in       io.Reader
	ended    chan<- struct{}
	reported bool
}

func (e *eofNotifier) Read(p []byte) (int, error) {
	n, err := e.in.Read(p)
	if err != nil && !e.reported {
		e.reported = true
		close(e.ended)
	}
	return n, err
}
