// Package sdnotify reports the state of serve to a service manager that speaks systemd's protocol:
// that it is ready, alive, or stopping. The service manager's socket is the one that the
// environment variable NOTIFY_SOCKET names; without it nothing is sent. See sd_notify(3).
//
// Begin reading at Notifier.
package sdnotify

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Watchdog returns the interval within which the service manager expects a sign of life from this
// process; 0 if it expects none. See sd_watchdog_enabled(3).
func Watchdog() time.Duration {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return 0
	}
	return interval
}

// Notifier sends serve's state to the service manager.
type Notifier struct {
	// Watchdog is the interval within which the service manager expects a sign of life. 0: none.
	Watchdog time.Duration
	Log      *slog.Logger
}

// Stopping reports that serve has begun to stop.
func (n Notifier) Stopping() { n.say(daemon.SdNotifyStopping) }

// Extend asks the service manager to let serve take that long to stop, from now on.
func (n Notifier) Extend(by time.Duration) {
	n.say(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", by.Microseconds()))
}

// startTime is how long serve may take for the rest of its start: systemd's default.
const startTime = 90 * time.Second

// Starting reports what serve does before it is ready. Until done is called, it asks the service manager again and
// again to let serve take startTime from then on: a start may take longer than any timeout that suits others.
func (n Notifier) Starting(what string) (done func()) { return n.starting(what, startTime) }

func (n Notifier) starting(what string, by time.Duration) (done func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		again := time.NewTicker(by / 3)
		defer again.Stop()
		for ctx.Err() == nil {
			n.say(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d\nSTATUS=%s", by.Microseconds(), what))
			select {
			case <-again.C:
			case <-ctx.Done():
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// Waits reports whether there is a service manager, which waits until serve has stopped.
func (Notifier) Waits() bool { return os.Getenv("NOTIFY_SOCKET") != "" }

func (n Notifier) say(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		n.Log.Warn("notifying the service manager failed", "state", state, "err", err)
	}
}

// Ready reports that serve has started, and with how many pods.
func (n Notifier) Ready(pods int) {
	n.say(fmt.Sprintf("%s\nSTATUS=Serving %d pods", daemon.SdNotifyReady, pods))
}

// Run sends signs of life until ctx ends, as long as the loop receives pings.
func (n Notifier) Run(ctx context.Context, ping chan<- struct{}) {
	if n.Watchdog <= 0 {
		return
	}
	every := time.NewTicker(n.Watchdog / 3)
	defer every.Stop()
	for {
		select {
		case ping <- struct{}{}:
			n.say(daemon.SdNotifyWatchdog)
		case <-ctx.Done():
			return
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}
