// Package sdnotify reports the state of serve to a service manager that speaks systemd's protocol:
// that it is ready, alive, or stopping. See sd_notify(3).
//
// Begin reading at Notifier.
package sdnotify

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"
)

// Options are how serve reports its state to a service manager that speaks systemd's
// protocol.
type Options struct {
	// Socket is the service manager's socket. Empty: there is none.
	Socket string
	// Watchdog is the interval within which the service manager expects a sign of life. 0: none.
	Watchdog time.Duration
}

// FromEnvironment reads the options from the environment that systemd gives a service; see sd_notify(3)
// and sd_watchdog_enabled(3).
func FromEnvironment(getenv func(string) string) Options {
	o := Options{Socket: getenv("NOTIFY_SOCKET")}
	micros, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64)
	if pid := getenv("WATCHDOG_PID"); err != nil || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return o
	}
	o.Watchdog = time.Duration(micros) * time.Microsecond
	return o
}

// Notifier sends serve's state to the service manager.
type Notifier struct {
	Options
	Log *slog.Logger
}

// Stopping reports that serve has begun to stop.
func (n Notifier) Stopping() { n.say("STOPPING=1") }

func (n Notifier) say(state string) {
	if n.Socket == "" {
		return
	}
	if err := n.send(state); err != nil {
		n.Log.Warn("notifying the service manager failed", "state", state, "err", err)
	}
}

func (n Notifier) send(state string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Net: "unixgram", Name: n.Socket})
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte(state))
	return err
}

// Ready reports that serve has started, and with how many pods.
func (n Notifier) Ready(pods int) {
	n.say(fmt.Sprintf("READY=1\nSTATUS=Serving %d pods", pods))
}

// Run sends signs of life until ctx ends, as long as the loop receives pings.
func (n Notifier) Run(ctx context.Context, ping chan<- struct{}) {
	if n.Socket == "" || n.Watchdog <= 0 {
		return
	}
	every := time.NewTicker(n.Watchdog / 3)
	defer every.Stop()
	for {
		select {
		case ping <- struct{}{}:
			n.say("WATCHDOG=1")
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
