package containerd

import (
	"context"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"

	"podrun.io/podrun/internal/runtime/containerd/daemon"
)

// While containerd is away it is asked every askAgain; of a process that has closed its output, and so has
// ended as a rule, only awayTries times.
const (
	askAgain  = 100 * time.Millisecond
	awayTries = 100
)

// startExec starts an exec'd process. A start that is cut off may succeed all the same, and a process that is not known
// to run cannot be killed: so it is seen through when ctx ends, and when containerd dies it is asked what came of it. It
// is never started a second time: a shim whose first try failed dies of another, and all that it has with it.
func (r *Runtime) startExec(ctx context.Context, id string, p client.Process) error {
	ctx, done := lingering(ctx)
	defer done()
	// Not by the process, which gives its streams up when a start fails.
	_, err := r.client.TaskService().Start(ctx, &tasks.StartRequest{ContainerID: id, ExecID: p.ID()})
	cut := daemon.Native(err)
	for tries := 0; errdefs.IsUnavailable(daemon.Native(err)) && tries < awayTries && ctx.Err() == nil; tries++ {
		select {
		case <-ctx.Done():
			continue
		case <-time.After(askAgain):
		}
		var s client.Status
		if s, err = p.Status(ctx); err == nil && s.Status == client.Created {
			err = cut
			break
		}
	}
	if err != nil {
		p.IO().Cancel()
		p.IO().Wait()
		p.IO().Close()
	}
	return daemon.Native(err)
}

// execEnd is how an exec'd process ended.
type execEnd struct {
	client.ExitStatus
	// away: containerd was, so that it may have ended well before this was known.
	away bool
}

// awaitExit tells a process's end once it is known. That containerd dies or is restarted ends no waiting: the
// shim has the process, and keeps its end until it is asked.
func awaitExit(ctx context.Context, p client.Process) <-chan execEnd {
	told := make(chan execEnd, 1)
	go func() {
		e := execEnd{ExitStatus: wait(ctx, p)}
		defer func() { told <- e }()
		if !unavailable(e.ExitStatus) {
			return
		}
		e.away = true
		silent := outputEnd(p.IO())
		for tries := 0; unavailable(e.ExitStatus) && tries < awayTries; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(askAgain):
			}
			select {
			case <-silent:
				tries++
			default:
			}
			e.ExitStatus = wait(ctx, p)
		}
	}()
	return told
}

func wait(ctx context.Context, p client.Process) client.ExitStatus {
	exited, err := p.Wait(ctx)
	if err != nil {
		return *client.NewExitStatus(client.UnknownExitStatus, time.Time{}, err)
	}
	return <-exited
}

func unavailable(s client.ExitStatus) bool { return errdefs.IsUnavailable(daemon.Native(s.Error())) }

// outputEnd is closed when all of the output has been copied, or is not copied any more.
func outputEnd(streams cio.IO) <-chan struct{} {
	silent := make(chan struct{})
	go func() {
		defer close(silent)
		if streams != nil {
			streams.Wait()
		}
	}()
	return silent
}
