// Package nodeshutdown delays a shutdown of the machine until pods have ended, with an inhibitor
// lock of systemd's logind. It does not know pods: the interface Shutdown ends them. It is the only
// package that uses logind over D-Bus.
//
// Start reading at Watcher.Run.
package nodeshutdown

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	service = "org.freedesktop.login1"
	path    = dbus.ObjectPath("/org/freedesktop/login1")
	manager = service + ".Manager"
	begins  = "PrepareForShutdown"
)

// again is the delay until a connection that failed or broke is tried again.
const again = 15 * time.Second

// Shutdown reacts to a shutdown of the machine.
type Shutdown interface {
	// Begin ends the pods. It must return when all have ended, or when the time within is over,
	// which is at most what logind grants.
	Begin(ctx context.Context, within time.Duration)
	// Cancel reports that the shutdown was cancelled.
	Cancel()
}

// Options configure a Watcher.
type Options struct {
	// Address is the address of the bus; "" means the system bus.
	Address string
	// Most is the maximum time that the shutdown is to be delayed.
	Most     time.Duration
	Shutdown Shutdown
	Log      *slog.Logger
}

// Watcher waits for a shutdown of the machine.
type Watcher struct{ o Options }

// New returns a Watcher.
func New(o Options) *Watcher { return &Watcher{o} }

// Run delays shutdowns until ctx ends, and returns ctx's error. If there is no bus or no logind on
// it, it tries again every 15 s.
func (w *Watcher) Run(ctx context.Context) error {
	level := slog.LevelInfo
	for ctx.Err() == nil {
		if err := w.watch(ctx); err != nil && ctx.Err() == nil {
			w.o.Log.Log(ctx, level,
				"cannot connect to logind: pods are not terminated gracefully when the machine shuts down", "err", err,
				"hint", "without systemd, run serve with --stop-pods, or podrun down --all in a script that stops the machine")
			level = slog.LevelDebug
		}
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
	return ctx.Err()
}

// watch uses one connection until it ends or ctx ends.
func (w *Watcher) watch(ctx context.Context) error {
	bus, err := w.connect(ctx)
	if err != nil {
		return err
	}
	defer bus.Close()
	signals := make(chan *dbus.Signal, 4)
	bus.Signal(signals)
	err = bus.AddMatchSignalContext(ctx, dbus.WithMatchSender(service),
		dbus.WithMatchObjectPath(path), dbus.WithMatchInterface(manager), dbus.WithMatchMember(begins))
	if err != nil {
		return fmt.Errorf("listening for %s: %w", begins, err)
	}
	lock, err := hold(ctx, bus)
	if err != nil {
		return err
	}
	defer func() { lock.Close() }()
	within := w.within(bus)
	w.o.Log.Info("node shutdown is delayed until pods have ended", "longest", within)
	for {
		select {
		case <-ctx.Done():
			return nil
		case s, connected := <-signals:
			if !connected {
				return errors.New("the connection to the bus has ended")
			}
			begun, known := begun(s)
			switch {
			case known && !isLogind(ctx, bus, s.Sender):
				w.o.Log.Warn("ignored a signal of a shutdown that logind did not send", "sender", s.Sender)
			case known && begun:
				w.o.Log.Info("node is shutting down; terminating pods", "within", within)
				w.o.Shutdown.Begin(ctx, within)
				lock.Close() // the shutdown continues
			case known:
				w.o.Log.Info("node shutdown was cancelled")
				w.o.Shutdown.Cancel()
				lock.Close()
				if lock, err = hold(ctx, bus); err != nil {
					return err
				}
			}
		}
	}
}

func (w *Watcher) connect(ctx context.Context) (*dbus.Conn, error) {
	if w.o.Address == "" {
		return dbus.ConnectSystemBus(dbus.WithContext(ctx))
	}
	return dbus.Connect(w.o.Address, dbus.WithContext(ctx))
}

// hold acquires an inhibitor lock that delays a shutdown. Closing the file lets the shutdown
// continue.
func hold(ctx context.Context, bus *dbus.Conn) (*os.File, error) {
	var fd dbus.UnixFD
	call := bus.Object(service, path).CallWithContext(ctx,
		manager+".Inhibit", 0, "shutdown", "podrun", "pods are terminated gracefully", "delay")
	if err := call.Store(&fd); err != nil {
		return nil, fmt.Errorf("acquiring an inhibitor lock: %w", err)
	}
	return os.NewFile(uintptr(fd), "inhibitor lock"), nil
}

// margin is the part of the time granted by logind that is reserved for containerd to complete its
// work.
const margin = 500 * time.Millisecond

// within returns how long pods have to end: the configured time, or what logind grants less margin
// if that is shorter.
func (w *Watcher) within(bus *dbus.Conn) time.Duration {
	var most uint64
	err := bus.Object(service, path).StoreProperty(manager+".InhibitDelayMaxUSec", &most)
	granted := time.Duration(most) * time.Microsecond
	if err != nil || granted <= 2*margin || granted-margin >= w.o.Most {
		return w.o.Most
	}
	w.o.Log.Info("logind grants less than --shutdown-grace-period; increase InhibitDelayMaxSec in logind.conf",
		"seconds", granted.Seconds())
	return granted - margin
}

// isLogind reports whether a signal's sender is logind. Any user of the machine may send signals by logind's name for
// them, and what is addressed to podrun's own connection needs no match.
func isLogind(ctx context.Context, bus *dbus.Conn, sender string) bool {
	var logind string
	err := bus.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.GetNameOwner", 0, service).Store(&logind)
	return err == nil && sender == logind
}

func begun(s *dbus.Signal) (yes, known bool) {
	if s.Name != manager+"."+begins || len(s.Body) != 1 {
		return false, false
	}
	yes, known = s.Body[0].(bool)
	return yes, known
}
