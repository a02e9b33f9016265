package exec

import (
	"context"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"

	"podrun.io/podrun/internal/runtime/containerd/daemon"
)

// While containerd is unavailable, it is asked again every askAgain; about a process that has
// closed its output, and so has exited as a rule, only awayTries times.
const (
	askAgain  = 100 * time.Millisecond
	awayTries = 100
)

// start starts an exec'd process. An interrupted start may succeed all the same, and a process
// that is not known to run cannot be killed. So the start is completed when ctx ends, and if
// containerd dies, containerd is asked afterwards whether the process started. The start is never
// repeated: a shim whose first attempt failed dies of a second one, with everything that it serves.
func (x *Execer) start(ctx context.Context, id string, p client.Process) error {
	ctx, done := daemon.Lingering(ctx)
	defer done()
	// Not by p.Start, because p gives up its streams when a start fails.
	_, err := x.client.TaskService().Start(ctx, &tasks.StartRequest{ContainerID: id, ExecID: p.ID()})
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
	return daemon.Native(err)
}

// end describes how an exec'd process ended.
type end struct {
	client.ExitStatus
	// away means that containerd was unavailable, so that the process may have exited well before
	// its exit was read.
	away bool
}

// awaitExit delivers the exit of a process once it is known. The wait does not end if containerd
// dies or is restarted: the shim has the process, and keeps its exit until it is asked for it.
func awaitExit(ctx context.Context, p client.Process) <-chan end {
	exited := make(chan end, 1)
	go func() {
		e := end{ExitStatus: wait(ctx, p)}
		defer func() { exited <- e }()
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
	return exited
}

// wait waits for the exit of a process. An error of containerd is in the returned status.
func wait(ctx context.Context, p client.Process) client.ExitStatus {
	exited, err := p.Wait(ctx)
	if err != nil {
		return *client.NewExitStatus(client.UnknownExitStatus, time.Time{}, err)
	}
	return <-exited
}

func unavailable(s client.ExitStatus) bool { return errdefs.IsUnavailable(daemon.Native(s.Error())) }

// outputEnd returns a channel that is closed when all output has been copied, or when copying has
// been cancelled.
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
