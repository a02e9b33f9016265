package nodeshutdown

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"podrun.io/podrun/internal/test"
	"podrun.io/podrun/internal/test/testlogind"
)

// pods is a Shutdown that tells what it hears.
type pods struct {
	heard chan time.Duration // -1: Cancel
	done  chan struct{}
}

func (p pods) Begin(ctx context.Context, within time.Duration) {
	select {
	case p.heard <- within:
	case <-ctx.Done():
		return
	}
	select {
	case <-p.done:
	case <-ctx.Done():
	}
}

func (p pods) Cancel(ctx context.Context) {
	select {
	case p.heard <- -1:
	case <-ctx.Done():
	}
}

func TestShutdownWaits(t *testing.T) {
	t.Parallel()
	m := testlogind.New(t, 5*time.Second)
	p := pods{heard: make(chan time.Duration), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	w := New(Options{Address: m.Address, Most: time.Minute, Shutdown: p, Log: slog.New(slog.DiscardHandler)})
	running.Go(func() { _ = w.Run(ctx) })
	defer running.Wait()
	defer cancel()

	lock := m.Lock(0)
	if !lock.Held(50 * time.Millisecond) {
		t.Error("the lock is not held")
	}
	m.Forge(true) // any user of the machine can do that
	select {
	case <-p.heard:
		t.Fatal("podrun believes anybody that the machine shuts down")
	case <-time.After(300 * time.Millisecond):
	}
	m.Shutdown(true)
	if within := <-p.heard; within != 5*time.Second-margin {
		t.Errorf("pods have %v", within)
	}
	if !lock.Held(50 * time.Millisecond) {
		t.Error("the lock is not held until all is done")
	}
	p.done <- struct{}{}
	if lock.Held(time.Minute) {
		t.Error("the lock is still held")
	}
	// It does not shut down after all: the next time it waits again.
	m.Shutdown(false)
	if within := <-p.heard; within != -1 {
		t.Errorf("pods have %v", within)
	}
	lock = m.Lock(1)
	cancel()
	running.Wait()
	if lock.Held(time.Minute) {
		t.Error("podrun has ended and still holds the lock")
	}
}

// soon is when a watcher of a test asks again for a lock.
const soon = 50 * time.Millisecond

// watch runs a Watcher until the test ends, and returns the pods that it ends.
func watch(t *testing.T, m *testlogind.Machine) pods {
	p := pods{heard: make(chan time.Duration), done: make(chan struct{})}
	w := New(Options{Address: m.Address, Most: time.Minute, Shutdown: p, Log: slog.New(slog.DiscardHandler)})
	w.again = soon
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return p
}

// TestStartedDuringShutdown: podrun that is started again while the machine shuts down gets no lock any more. It ends the
// pods nevertheless, and goes on if the shutdown is cancelled.
func TestStartedDuringShutdown(t *testing.T) {
	t.Parallel()
	m := testlogind.New(t, 5*time.Second)
	m.Shutdown(true)
	p := watch(t, m)
	if within := <-p.heard; within != time.Minute {
		t.Errorf("pods have %v", within)
	}
	p.done <- struct{}{}
	m.Shutdown(false)
	if within := <-p.heard; within != -1 {
		t.Errorf("pods have %v", within)
	}
	if !m.Lock(0).Held(50 * time.Millisecond) {
		t.Error("the lock is not held")
	}
}

// TestCancelledUnheard: a shutdown is cancelled while there is no connection to the bus.
func TestCancelledUnheard(t *testing.T) {
	t.Parallel()
	m := testlogind.New(t, 5*time.Second)
	p := pods{heard: make(chan time.Duration, 2), done: make(chan struct{}, 1)}
	w := New(Options{Address: m.Address, Most: time.Minute, Shutdown: p, Log: slog.New(slog.DiscardHandler)})
	m.Shutdown(true)
	p.done <- struct{}{}
	if lock, _, err := w.ready(t.Context()); lock != nil || err != nil || <-p.heard != time.Minute {
		t.Errorf("lock %v, error %v", lock, err)
	}
	m.Shutdown(false)
	for range 2 { // once is enough
		lock, _, err := w.ready(t.Context())
		test.Must(t, err)
		test.Must(t, lock.Close())
	}
	if within := <-p.heard; within != -1 || len(p.heard) > 0 {
		t.Errorf("pods have %v, and %d more", within, len(p.heard))
	}
}

// TestForgotten: logind has forgotten a shutdown that it had announced, and says nothing.
func TestForgotten(t *testing.T) {
	t.Parallel()
	m := testlogind.New(t, 5*time.Second)
	p := watch(t, m)
	m.Lock(0)
	m.Shutdown(true)
	<-p.heard
	p.done <- struct{}{}
	select {
	case within := <-p.heard:
		t.Fatalf("while it shuts down, pods have %v", within)
	case <-time.After(10 * soon):
	}
	m.Forget()
	if within := <-p.heard; within != -1 {
		t.Errorf("pods have %v", within)
	}
	if !m.Lock(1).Held(10 * soon) {
		t.Error("the lock is not held")
	}
}

// TestFlood: any user of the machine may send podrun as many and as long signals as they like, with files. It keeps no
// file of them, and a shutdown is heard.
func TestFlood(t *testing.T) {
	t.Parallel()
	m := testlogind.New(t, 5*time.Second)
	p := pods{heard: make(chan time.Duration), done: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	log := &test.Buffer{}
	w := New(Options{Address: m.Address, Most: time.Minute, Shutdown: p, Log: slog.New(slog.NewTextHandler(log, nil))})
	running.Go(func() { _ = w.Run(ctx) })
	defer running.Wait()
	defer cancel()
	m.Lock(0)
	// Like the connection of the moment that asks for a file.
	withFiles, err := dial(ctx, m.Address, true)
	if err != nil {
		t.Fatal(err)
	}
	defer withFiles.Close()
	f, err := os.Create(filepath.Join(t.TempDir(), "sent"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var files []any
	for range 16 {
		files = append(files, dbus.UnixFD(f.Fd()))
	}
	for range 50 {
		m.Flood(files...)
		m.Flood(strings.Repeat("long", mostMessage))
		m.Flood(true)
		if _, err := withFiles.call(theBus, "/org/freedesktop/DBus", theBus+".GetId"); err != nil {
			t.Fatal(err)
		}
	}
	withFiles.closeFiles() // those of the last message
	open := 0
	all, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range all {
		if to, _ := os.Readlink(fd); to == f.Name() {
			open++
		}
	}
	if open != 1 {
		t.Errorf("the file is open %d times", open)
	}
	m.Shutdown(true)
	if within := <-p.heard; within != 5*time.Second-margin {
		t.Errorf("pods have %v", within)
	}
	p.done <- struct{}{}
	if n := strings.Count(log.String(), "ignored a signal"); n != 1 {
		t.Errorf("warned %d times: %s", n, log)
	}
}

func TestNoBus(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var out bytes.Buffer
	w := New(Options{Address: "unix:path=" + t.TempDir() + "/none", Most: time.Minute, Log: slog.New(slog.NewTextHandler(&out, nil))})
	if err := w.Run(ctx); ctx.Err() == nil {
		t.Errorf("ended with %v", err)
	}
	for _, part := range []string{"level=INFO", "--stop-pods", "podrun down --all"} { // what to do instead
		if !strings.Contains(out.String(), part) {
			t.Errorf("no %q in %s", part, &out)
		}
	}
}
