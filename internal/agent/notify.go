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

// NotifyOptions are how a service manager that speaks systemd's protocol wants to hear how serve is.
type NotifyOptions struct {
	// Socket is where it listens; empty: nobody does.
	Socket string
	// Watchdog is how long it waits for a sign of life; 0: for ever.
	Watchdog time.Duration
}

// NotifyFrom reads what systemd gives a service by environment; see sd_notify(3) and sd_watchdog_enabled(3).
func NotifyFrom(getenv func(string) string) NotifyOptions {
	o := NotifyOptions{Socket: getenv("NOTIFY_SOCKET")}
	micros, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64)
	if pid := getenv("WATCHDOG_PID"); err != nil || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return o
	}
	o.Watchdog = time.Duration(micros) * time.Microsecond
	return o
}

// notifier tells a service manager how serve is.
type notifier struct {
	NotifyOptions
	log *slog.Logger
}

func (n notifier) say(state string) {
	if n.Socket == "" {
		return
	}
	if err := n.send(state); err != nil {
		n.log.Warn("the service manager is not told", "state", state, "why", err)
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

// ready says that serve has begun its work, and on what.
func (n notifier) ready(pods int) {
	n.say(fmt.Sprintf("READY=1\nSTATUS=Serving %d pods", pods))
}

// keep gives signs of life until ctx ends, as long as the loop takes what is offered to it. Pods that the
// loop does not know are nothing to it.
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
