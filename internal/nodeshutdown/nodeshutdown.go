// Package nodeshutdown holds the machine's shutdown up, as systemd lets services do, for as long as pods need to end.
// It knows no pods; no other room speaks D-Bus to it.
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

// again is when a connection that could not be made, or that broke, is tried again.
const again = 15 * time.Second

// Shutdown is what is to be done when the machine is about to stop.
type Shutdown interface {
	// Begin returns when all is done, or when no more than the time is over that logind waits for.
	Begin(ctx context.Context, within time.Duration)
	// Cancel says that it does not stop after all.
	Cancel()
}

// Options make a Watcher.
type Options struct {
	// Address is the bus's; empty: the system's.
	Address string
	// Most is the longest that the shutdown is to be held up.
	Most     time.Duration
	Shutdown Shutdown
	Log      *slog.Logger
}

// Watcher waits for the shutdown.
type Watcher struct{ o Options }

// New makes a Watcher.
func New(o Options) *Watcher { return &Watcher{o} }

// Run holds shutdowns up until ctx ends. Without a bus or logind on it, it tries again from time to time.
func (w *Watcher) Run(ctx context.Context) error {
	level := slog.LevelInfo
	for ctx.Err() == nil {
		if err := w.watch(ctx); err != nil && ctx.Err() == nil {
			w.o.Log.Log(ctx, level, "pods are not ended in order before a shutdown of the machine: logind cannot be reached", "why", err)
			level = slog.LevelDebug
		}
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
	return ctx.Err()
}

// watch serves one connection.
func (w *Watcher) watch(ctx context.Context) error {
	bus, err := w.connect(ctx)
	if err != nil {
		return err
	}
	defer bus.Close()
	signals := make(chan *dbus.Signal, 4)
	bus.Signal(signals)
	err = bus.AddMatchSignalContext(ctx, dbus.WithMatchObjectPath(path), dbus.WithMatchInterface(manager), dbus.WithMatchMember(begins))
	if err != nil {
		return fmt.Errorf("listening for %s: %w", begins, err)
	}
	lock, err := hold(ctx, bus)
	if err != nil {
		return err
	}
	defer func() { lock.Close() }()
	within := w.within(bus)
	w.o.Log.Info("a shutdown of the machine waits for pods to end", "longest", within)
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
			case known && begun:
				w.o.Log.Info("the machine shuts down; ending pods", "within", within)
				w.o.Shutdown.Begin(ctx, within)
				lock.Close() // so it goes on
			case known:
				w.o.Log.Info("the machine does not shut down after all")
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

// hold takes an inhibitor lock of the kind that delays. Closing the file lets the shutdown go on.
func hold(ctx context.Context, bus *dbus.Conn) (*os.File, error) {
	var fd dbus.UnixFD
	call := bus.Object(service, path).CallWithContext(ctx, manager+".Inhibit", 0, "shutdown", "podrun", "pods are ended in order", "delay")
	if err := call.Store(&fd); err != nil {
		return nil, fmt.Errorf("taking an inhibitor lock: %w", err)
	}
	return os.NewFile(uintptr(fd), "inhibitor lock"), nil
}

// margin is kept of the time that logind grants, for containerd to do what was asked.
const margin = 500 * time.Millisecond

// within is how long pods have: what is wished, but no more than logind waits.
func (w *Watcher) within(bus *dbus.Conn) time.Duration {
	var most uint64
	err := bus.Object(service, path).StoreProperty(manager+".InhibitDelayMaxUSec", &most)
	granted := time.Duration(most) * time.Microsecond
	if err != nil || granted <= 2*margin || granted-margin >= w.o.Most {
		return w.o.Most
	}
	w.o.Log.Info("logind waits for less than --shutdown-grace-period: InhibitDelayMaxSec in logind.conf says for how long", "seconds", granted.Seconds())
	return granted - margin
}

func begun(s *dbus.Signal) (yes, known bool) {
	if s.Name != manager+"."+begins || len(s.Body) != 1 {
		return false, false
	}
	yes, known = s.Body[0].(bool)
	return yes, known
}
