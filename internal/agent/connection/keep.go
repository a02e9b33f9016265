package connection

import (
	"context"
	"log/slog"
	"time"

	"podrun.io/podrun/internal/embedded"
)

// The times between checks of podrun's own containerd: watchedPoll if the kernel reports its end, so
// that a check only finds what no end tells, such as a removed directory; keepPoll if not, and after
// a failed start, when it doubles up to longestPoll.
const (
	keepPoll    = 200 * time.Millisecond
	watchedPoll = 5 * time.Second
	longestPoll = 10 * time.Second
)

// Keep restarts podrun's own containerd whenever it has died, until ctx ends. The connection
// reconnects by itself. Any other containerd is managed by its owner, so Keep returns at once.
func (c *Connection) Keep(ctx context.Context) {
	if !c.Embedded {
		return
	}
	k := keeper{
		pid:   func() int { return embedded.PID(c.own.Dirs) },
		runs:  func() bool { return embedded.Running(c.own.Dirs) },
		watch: c.Processes.Watch,
		log:   c.own.Log,
		start: func() error {
			// As long as it has clients, a daemon whose directory was removed blocks the root directory
			// for a new one.
			_ = c.lease.Close()
			lease, err := embedded.Ensure(ctx, c.own)
			if err == nil {
				c.lease = lease
			}
			return err
		},
	}
	k.run(ctx)
}

// keeper restarts a daemon.
type keeper struct {
	// runs reports whether there is a daemon. pid returns its process ID, 0 if that is not known.
	runs func() bool
	pid  func() int
	// watch calls ended when the process has ended. It returns false if it cannot.
	watch func(pid int, ended func()) bool
	start func() error
	log   *slog.Logger

	watched int // the process ID of the daemon whose end is reported, 0: none
}

// run restarts the daemon whenever it has died, until ctx ends.
func (k *keeper) run(ctx context.Context) {
	ended := make(chan struct{}, 1)
	pause, failed := k.observe(ended), false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ended:
			k.watched = 0
		case <-time.After(pause):
		}
		if !k.runs() {
			if !failed {
				k.log.Warn("podrun's own containerd has died; restarting it")
			}
			if err := k.start(); err != nil {
				if !failed && ctx.Err() == nil {
					k.log.Error("podrun's own containerd failed to start; retrying", "err", err)
				}
				if !failed {
					pause = keepPoll
				}
				pause, failed = min(2*pause, longestPoll), true
				continue
			}
		}
		pause, failed = k.observe(ended), false
	}
}

// observe makes the end of the running daemon known to the channel, and returns how long to wait for
// it before the next check.
func (k *keeper) observe(ended chan<- struct{}) time.Duration {
	pid := k.pid()
	if pid == 0 {
		return keepPoll
	}
	if pid != k.watched {
		if !k.watch(pid, func() {
			select {
			case ended <- struct{}{}:
			default: // the end of an earlier one is not read yet
			}
		}) {
			k.watched = 0
			return keepPoll
		}
		k.watched = pid
	}
	return watchedPoll
}
