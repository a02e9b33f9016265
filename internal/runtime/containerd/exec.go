package containerd

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/opencontainers/runtime-spec/specs-go"

	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/stdin"
)

// drainTimeout bounds the wait for output after an exec'd command has ended: a child that it left
// behind may hold its output open for ever.
const drainTimeout = 2 * time.Second

// The shim waits for the output too before it removes a process, up to removeTime. Where somebody is known to
// hold it open it is given no more than heldTime.
const (
	removeTime = 10 * time.Second
	heldTime   = time.Second
)

// holdTime bounds the wait for the shim to open the input of a process that it has just started.
const holdTime = 100 * time.Millisecond

// Exec implements runtime.Execer.
func (r *Runtime) Exec(ctx context.Context, id string, cmd []string, streams runtime.ExecIO) (int, error) {
	ctx, cut := context.WithCancelCause(r.client.Context(ctx))
	defer cut(nil)
	process, t, err := r.execTarget(ctx, id)
	if err != nil {
		return 0, daemon.Mapped("exec in "+id, err)
	}
	if err := r.confined(int(t.Pid())); err != nil {
		return 0, fmt.Errorf("exec in %s: %w", id, err)
	}
	if streams != (runtime.ExecIO{}) {
		streams.Stdout, streams.Stderr = failingWriter(streams.Stdout, cut), failingWriter(streams.Stderr, cut)
	}
	process.Args, process.Terminal = cmd, streams.TTY
	ended, held := make(chan struct{}), make(chan struct{})
	letGo := sync.OnceFunc(func() { close(held) })
	defer letGo()
	if streams.Stdin != nil {
		// Who reads what the process says may be killed from then on, and the process is not left behind.
		streams.Stdout, streams.Stderr = &gated{streams.Stdout, held}, &gated{streams.Stderr, held}
	}
	dir, err := r.pipes.Dir()
	if err != nil {
		return 0, err
	}
	opts := []cio.Opt{cio.WithFIFODir(dir), cio.WithStreams(input(streams.Stdin, ended), streams.Stdout, streams.Stderr)}
	if streams.TTY {
		opts = append(opts, cio.WithTerminal)
		process.Env = oci.WithTerm(process.Env)
		if size := streams.Size; size != (runtime.TermSize{}) {
			process.ConsoleSize = &specs.Box{Width: uint(size.Width), Height: uint(size.Height)}
		}
	}
	p, err := t.Exec(ctx, "exec-"+rand.Text(), process, cio.NewCreator(opts...))
	if err != nil {
		return 0, daemon.Mapped("exec in "+id, err)
	}
	code, err := r.follow(ctx, id, p, streams, ended, letGo)
	limit := removeTime
	if err == nil && !drain(p.IO()) {
		limit = heldTime
	}
	r.removeExec(ctx, p, id, err == nil, limit)
	return code, err
}

// confined says why a command would run outside of the container of a process. It is looked at until one is as it should
// be: all are started at the same place.
func (r *Runtime) confined(pid int) error {
	if r.rooted.Load() {
		return nil
	}
	hides, err := sys.RootHides(pid)
	if hides {
		return errors.New("containerd runs in a chroot, so the command would run in the machine's root directory: enter that directory by pivot_root instead")
	}
	if err != nil {
		r.Log.Debug("it is not known where a command will run", "why", err) // of a process that is gone: the start will tell
		return nil
	}
	r.rooted.Store(true)
	return nil
}

// removeExec removes an exec'd process, and kills it first unless it is dead.
func (r *Runtime) removeExec(ctx context.Context, p client.Process, id string, dead bool, limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	var how []client.ProcessDeleteOpts
	if !dead { // one that never started has nothing to be killed
		how = append(how, client.WithProcessKill)
	}
	if _, err := p.Delete(ctx, how...); err != nil {
		r.abandon(p, id, err)
	}
}

// abandon removes the pipes of a process that could not be removed: as a rule it went with its container.
func (r *Runtime) abandon(p client.Process, id string, why error) {
	if daemon.IsNotFound(why) {
		why = nil
	}
	if streams := p.IO(); streams != nil {
		streams.Cancel()
		why = errors.Join(why, streams.Close())
	}
	if why != nil {
		r.Log.Debug("an exec'd process was not removed", "container", id, "why", why)
	}
}

// failingWriter is w, and ends the command when it fails: what nobody takes would hold the command up for ever. A shim
// takes all streams or none.
func failingWriter(w io.Writer, cut context.CancelCauseFunc) io.Writer {
	if w == nil {
		return io.Discard
	}
	return &taker{w, cut}
}

type taker struct {
	w   io.Writer
	cut context.CancelCauseFunc
}

// Write never fails: the shim, which copies the output too, is not to wait for who takes it either.
func (t *taker) Write(p []byte) (int, error) {
	if _, err := t.w.Write(p); err != nil {
		t.cut(fmt.Errorf("passing a command's output on: %w", err))
		t.w = io.Discard
	}
	return len(p), nil
}

// execTarget returns what a command that is to run in the instance starts from. Probes come by here again
// and again, so the record is asked for once only.
func (r *Runtime) execTarget(ctx context.Context, id string) (*specs.Process, client.Task, error) {
	c, err := r.client.LoadContainer(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	record, err := c.Info(ctx, client.WithoutRefreshedMetadata)
	if err != nil {
		return nil, nil, err
	}
	if !ours(record.Labels) {
		return nil, nil, fmt.Errorf("container %s is not podrun's", id)
	}
	var spec struct {
		Process *specs.Process `json:"process"`
	}
	if err := json.Unmarshal(record.Spec.GetValue(), &spec); err != nil {
		return nil, nil, fmt.Errorf("reading the spec: %w", err)
	}
	if spec.Process == nil {
		return nil, nil, errors.New("the spec has no process")
	}
	if err := r.legacyWithheld(record, spec.Process); err != nil {
		return nil, nil, err
	}
	t, err := c.Task(ctx, nil)
	return spec.Process, t, err
}

// gated is a writer that waits until it is opened.
type gated struct {
	w    io.Writer
	open <-chan struct{}
}

func (g *gated) Write(p []byte) (int, error) {
	<-g.open
	return g.w.Write(p)
}

// follow starts the process in the container and stays with it until it ends. It calls held when the process ends with podrun.
func (r *Runtime) follow(ctx context.Context, id string, p client.Process, streams runtime.ExecIO, inputEnded <-chan struct{}, held func()) (int, error) {
	// Not ctx: when that ends, the process is killed and its end awaited.
	waiting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	exited := awaitExit(waiting, p)
	if err := r.startExec(ctx, id, p); err != nil {
		return 0, daemon.Mapped("starting an exec'd process", err)
	}
	hold := r.holdStdin(ctx, p)
	defer hold.Close() // of nil too
	held()
	for {
		select {
		case e := <-exited:
			if err := e.Error(); isGone(err) { // with its shim
				return 0, fmt.Errorf("waiting for an exec'd process: %w: %w", runtime.ErrNotFound, err)
			} else if err != nil {
				return 0, daemon.Mapped("waiting for an exec'd process", err)
			}
			return int(e.ExitCode()), context.Cause(ctx)
		case <-inputEnded:
			inputEnded = nil
			hold.Close()
			if hold == nil {
				r.closeExecStdin(ctx, p)
			}
		case size, open := <-streams.Resize:
			if !open {
				streams.Resize = nil
				continue
			}
			if err := p.Resize(ctx, uint32(size.Width), uint32(size.Height)); err != nil && !daemon.IsNotFound(err) {
				r.Log.Debug("a terminal was not resized", "why", err)
			}
		case <-ctx.Done():
			kill, stop := daemon.CleanupContext(ctx)
			err := p.Kill(kill, syscall.SIGKILL)
			stop()
			if err != nil && !daemon.IsNotFound(err) {
				return 0, errors.Join(context.Cause(ctx), daemon.Mapped("killing an exec'd process", err))
			}
			if e := <-exited; e.away { // it may have ended in time
				return 0, errors.Join(context.Cause(ctx), runtime.ErrUnavailable)
			}
			return 0, context.Cause(ctx)
		}
	}
}

// holdStdin makes this process the only one that keeps the exec'd process's input from ending: so it ends
// with podrun, and a shell on a terminal is hung up, even when podrun is killed. Nil: that could not be had.
func (r *Runtime) holdStdin(ctx context.Context, p client.Process) *os.File {
	streams := p.IO()
	if streams == nil || streams.Config().Stdin == "" {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, holdTime)
	defer cancel()
	held, err := stdin.Open(waiting, streams.Config().Stdin)
	if err != nil {
		return nil // as a rule it has ended, or closed its input, already
	}
	r.closeExecStdin(ctx, p)
	return held
}

// closeExecStdin has the shim close its own end of the process's input.
func (r *Runtime) closeExecStdin(ctx context.Context, p client.Process) {
	if err := p.CloseIO(ctx, client.WithStdinCloser); err != nil && !daemon.IsNotFound(err) {
		r.Log.Debug("an exec'd process's input was not closed", "why", err)
	}
}

// drain waits until all output has been copied. It reports whether that was so in time.
func drain(streams cio.IO) bool {
	done := outputEnd(streams)
	select {
	case <-done:
		return true
	case <-time.After(drainTimeout):
		streams.Cancel() // ends the copying, and with it the goroutine
		<-done
		return false
	}
}

// input is in, and closes ended at its end: the shim keeps the process's input open until it is told.
func input(in io.Reader, ended chan<- struct{}) io.Reader {
	if in == nil {
		return nil
	}
	return &endTeller{in: in, ended: ended}
}

type endTeller struct {
	in       io.Reader
	ended    chan<- struct{}
	reported bool
}

func (e *endTeller) Read(p []byte) (int, error) {
	n, err := e.in.Read(p)
	if err != nil && !e.reported {
		e.reported = true
		close(e.ended)
	}
	return n, err
}
