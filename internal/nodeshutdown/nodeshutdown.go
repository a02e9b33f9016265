// Package nodeshutdown delays a shutdown of the machine until pods have ended, with an inhibitor
// lock of systemd's logind. It does not know pods: the interface Shutdown ends them. It is the only
// package that uses logind over D-Bus.
//
// Start reading at Watcher.Run.
package nodeshutdown

import (
	"cmp"
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
	// underway is logind's error if a lock is asked for after the shutdown has begun.
	underway = service + ".OperationInProgress"
)

// again is the delay until a connection that failed or broke is tried again, and a lock that was refused.
const again = 15 * time.Second

// Shutdown reacts to a shutdown of the machine.
type Shutdown interface {
	// Begin ends the pods. It must return when all have ended, or when the time within is over,
	// which is at most what logind grants.
	Begin(ctx context.Context, within time.Duration)
	// Cancel reports that the shutdown was cancelled.
	Cancel(ctx context.Context)
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
type Watcher struct {
	o     Options
	again time.Duration
	// begun: the pods were terminated, since the last Cancel.
	begun bool
}

// New returns a Watcher.
func New(o Options) *Watcher { return &Watcher{o: o, again: again} }

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
		case <-time.After(w.again):
		}
	}
	return ctx.Err()
}

// watch uses one connection until it ends or ctx ends.
func (w *Watcher) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	shutdowns, ended, err := w.listen(ctx)
	if err != nil {
		return err
	}
	lock, within, err := w.ready(ctx)
	if err != nil {
		return err
	}
	defer func() { lock.Close() }()
	for {
		var retry <-chan time.Time
		if w.begun {
			retry = time.After(w.again)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-retry: // logind does not say that it has forgotten a shutdown, as with shutdown -c or when it restarts
			if lock, within, err = w.ready(ctx); err != nil {
				return err
			}
		case err := <-ended:
			return fmt.Errorf("the connection to the bus has ended: %w", err)
		case begun := <-shutdowns:
			if begun {
				w.o.Log.Info("node is shutting down; terminating pods", "within", within)
				w.begin(ctx, within)
				lock.Close() // the shutdown continues
				continue
			}
			w.cancel(ctx)
			lock.Close()
			if lock, within, err = w.ready(ctx); err != nil {
				return err
			}
		}
	}
}

func (w *Watcher) begin(ctx context.Context, within time.Duration) {
	w.begun = true
	w.o.Shutdown.Begin(ctx, within)
}

func (w *Watcher) cancel(ctx context.Context) {
	w.begun = false
	w.o.Log.Info("node shutdown was cancelled")
	w.o.Shutdown.Cancel(ctx)
}

// ready acquires a lock, and catches up with what logind has not said, or not to this connection. While a shutdown is
// under way there is no lock: nothing but the service manager waits for the pods then.
func (w *Watcher) ready(ctx context.Context) (lock *os.File, within time.Duration, err error) {
	lock, within, err = w.hold(ctx)
	if refused := (dbus.Error{}); errors.As(err, &refused) && refused.Name == underway {
		if !w.begun {
			w.o.Log.Info("node is already shutting down; terminating pods", "within", w.o.Most)
			w.begin(ctx, w.o.Most)
		}
		return nil, w.o.Most, nil
	}
	if err != nil {
		return nil, 0, err
	}
	if w.begun {
		if stopping, err := Stopping(ctx); stopping || err != nil { // without logind, or it has ended meanwhile
			lock.Close()
			return nil, within, err
		}
		w.cancel(ctx)
	}
	w.o.Log.Info("node shutdown is delayed until pods have ended", "longest", within)
	return lock, within, nil
}

func (w *Watcher) address() string {
	return cmp.Or(w.o.Address, os.Getenv("DBUS_SYSTEM_BUS_ADDRESS"), systemBus)
}

// listen returns whether a shutdown begins or is cancelled, each time that logind says so until ctx ends, and the error
// with which that ends.
func (w *Watcher) listen(ctx context.Context) (<-chan bool, <-chan error, error) {
	b, err := dial(ctx, w.address(), false)
	if err != nil {
		return nil, nil, err
	}
	l := &listener{log: w.o.Log, shutdowns: make(chan bool, 8)}
	b.other = func(m *dbus.Message) { l.receive(ctx, m) }
	if err := l.subscribe(b); err != nil {
		b.Close()
		return nil, nil, fmt.Errorf("listening for %s: %w", begins, err)
	}
	ended := make(chan error, 1)
	go func() {
		defer b.Close()
		for {
			m, err := b.next()
			if err != nil {
				ended <- err
				return
			}
			b.other(m)
		}
	}()
	return l.shutdowns, ended, nil
}

// listener receives what a bus delivers, and passes on what logind says of shutdowns. Any user of the machine may send
// the same signals: the bus says who sent a message, and who logind is.
type listener struct {
	log       *slog.Logger
	shutdowns chan bool
	// logind is the connection that has its name; "" if none has.
	logind string
	warned bool
}

func (l *listener) subscribe(b *bus) error {
	const bus = dbus.ObjectPath("/org/freedesktop/DBus")
	match := func(rule string) error {
		_, err := b.call(theBus, bus, theBus+".AddMatch", rule)
		return err
	}
	err := match("type='signal',sender='" + theBus + "',member='NameOwnerChanged',arg0='" + service + "'")
	if err != nil {
		return err
	}
	owner, err := b.call(theBus, bus, theBus+".GetNameOwner", service)
	if none := (dbus.Error{}); err == nil {
		err = dbus.Store(owner, &l.logind)
	} else if errors.As(err, &none) && none.Name == theBus+".Error.NameHasNoOwner" {
		err = nil // the bus starts it with the first call
	}
	if err == nil {
		err = match("type='signal',sender='" + service + "',path='" + string(path) +
			"',interface='" + manager + "',member='" + begins + "'")
	}
	if err != nil {
		return err
	}
	return b.conn.SetDeadline(time.Time{})
}

func (l *listener) receive(ctx context.Context, m *dbus.Message) {
	sender, _ := m.Headers[dbus.FieldSender].Value().(string)
	member, _ := m.Headers[dbus.FieldMember].Value().(string)
	of, _ := m.Headers[dbus.FieldInterface].Value().(string)
	if m.Type != dbus.TypeSignal {
		return
	}
	if sender == theBus && member == "NameOwnerChanged" {
		var name, former, owner string
		if err := dbus.Store(m.Body, &name, &former, &owner); err == nil && name == service {
			l.logind = owner
		}
		return
	}
	if of != manager || member != begins || len(m.Body) != 1 {
		return
	}
	begun, is := m.Body[0].(bool)
	if !is {
		return
	}
	if sender != l.logind {
		if !l.warned {
			l.warned = true
			l.log.Warn("ignored a signal of a shutdown that logind did not send; others will be ignored silently",
				"sender", sender)
		}
		return
	}
	select {
	case l.shutdowns <- begun:
	case <-ctx.Done():
	}
}

// hold acquires an inhibitor lock that delays a shutdown, and returns how long pods then have to end. Closing the file
// lets the shutdown continue. The connection is one of its own that ends at once: others could send files to it.
func (w *Watcher) hold(ctx context.Context) (lock *os.File, within time.Duration, err error) {
	b, err := dial(ctx, w.address(), true)
	if err != nil {
		return nil, 0, err
	}
	defer b.Close()
	reply, err := b.call(service, path, manager+".Inhibit",
		"shutdown", "podrun", "pods are terminated gracefully", "delay")
	if err == nil {
		if len(reply) == 1 {
			lock, _ = reply[0].(*os.File)
		}
		if lock == nil {
			err = errors.New("logind returned no file")
		}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("acquiring an inhibitor lock: %w", err)
	}
	return lock, w.within(b), nil
}

// margin is the part of the time granted by logind that is reserved for containerd to complete its
// work.
const margin = 500 * time.Millisecond

// within returns how long pods have to end: the configured time, or what logind grants less margin
// if that is shorter.
func (w *Watcher) within(b *bus) time.Duration {
	var value dbus.Variant
	reply, err := b.call(service, path, "org.freedesktop.DBus.Properties.Get", manager, "InhibitDelayMaxUSec")
	if err == nil {
		err = dbus.Store(reply, &value)
	}
	most, _ := value.Value().(uint64)
	granted := time.Duration(most) * time.Microsecond
	if err != nil || granted <= 2*margin || granted-margin >= w.o.Most {
		return w.o.Most
	}
	w.o.Log.Info("logind grants less than --shutdown-grace-period; increase InhibitDelayMaxSec in logind.conf",
		"seconds", granted.Seconds())
	return granted - margin
}
