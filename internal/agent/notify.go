package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"podrun.io/podrun/internal/pod"
)

// NotifyOptions are how serve reports its state to a service manager that speaks systemd's
// protocol.
type NotifyOptions struct {
	// Socket is the service manager's socket. Empty: there is none.
	Socket string
	// Watchdog is the interval within which the service manager expects a sign of life. 0: none.
	Watchdog time.Duration
}

// NotifyFrom reads the options from the environment that systemd gives a service; see sd_notify(3)
// and sd_watchdog_enabled(3).
func NotifyFrom(getenv func(string) string) NotifyOptions {
	o := NotifyOptions{Socket: getenv("NOTIFY_SOCKET")}
	micros, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64)
	if pid := getenv("WATCHDOG_PID"); err != nil || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return o
	}
	o.Watchdog = time.Duration(micros) * time.Microsecond
	return o
}

// notifier sends serve's state to the service manager.
type notifier struct {
	NotifyOptions
	log *slog.Logger
}

func (n notifier) say(state string) {
	if n.Socket == "" {
		return
	}
	if err := n.send(state); err != nil {
		n.log.Warn("notifying the service manager failed", "state", state, "err", err)
	}
}

func (n notifier) send(state string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Net: "unixgram", Name: n.Socket})
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte(state))
	return err
}

// ready reports that serve has started, and with how many pods.
func (n notifier) ready(pods int) {
	n.say(fmt.Sprintf("READY=1\nSTATUS=Serving %d pods", pods))
}

// keep sends signs of life until ctx ends, as long as the loop receives from its channel. It sends
// the loop the zero Key, which the loop ignores.
func (n notifier) keep(ctx context.Context, loop chan<- pod.Key) {
	if n.Socket == "" || n.Watchdog <= 0 {
		return
	}
	every := time.NewTicker(n.Watchdog / 3)
	defer every.Stop()
	for {
		select {
		case loop <- pod.Key{}:
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
