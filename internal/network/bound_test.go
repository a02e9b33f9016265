package network

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/network/nettest"
	"podrun.io/podrun/internal/sys"
)

// hang is a plugin that never ends, with a child that has its standard output too.
const hang = `sleep 1000 & echo $! >child; sleep 1000`

// soon is how long a test waits for what has to be done at once.
const soon = 20 * time.Second

// within fails the test if f takes longer than soon.
func within(t *testing.T, what string, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(soon):
		t.Fatalf("%s: not done within %s", what, soon)
		return nil
	}
}

// ended waits until the child of a plugin that hung is gone.
func (s *standIn) ended(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "child"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	})
	for end := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") { // whoever is init here may not reap it
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the plugin's child %d is left", pid)
		}
	}
}

// started waits until the plugin has been called.
func (s *standIn) started(t *testing.T, command, id string) {
	t.Helper()
	for end := time.Now().Add(soon); s.calls(t, command, id) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s of %s is not called", command, id)
		}
	}
}

// TestPluginHangs: a hanging plugin is killed with its children when the caller's context ends, and
// its sandbox is released by a later call.
func TestPluginHangs(t *testing.T) {
	s := newStandIn(t)
	s.connect(t, "a")
	for command, call := range map[string]func(ctx context.Context) error{
		"DEL": func(ctx context.Context) error { return s.Teardown(ctx, "a") },
		"ADD": func(ctx context.Context) error { _, err := s.setup(ctx, "b", nettest.NewNS(t)); return err },
	} {
		id := map[string]string{"DEL": "a", "ADD": "b"}[command]
		s.on(t, command, id, hang)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		if err := within(t, command, func() error { return call(ctx) }); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v", command, err)
		}
		s.ended(t)
		s.on(t, command, id, "")
	}
	s.held(t, "a", "b")
	for _, id := range []string{"a", "b"} {
		if err := s.Teardown(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	s.held(t)
}

// TestPluginLimit: a caller without a deadline does not wait for a plugin for ever.
func TestPluginLimit(t *testing.T) {
	s := newStandIn(t)
	s.plugins.AddLimit, s.plugins.DelLimit = 300*time.Millisecond, 300*time.Millisecond
	s.on(t, "ADD", "a", hang)
	s.on(t, "DEL", "a", hang)
	ns := nettest.NewNS(t)
	err := within(t, "ADD", func() error { _, err := s.setup(context.Background(), "a", ns); return err })
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "300ms") {
		t.Errorf("ADD: error %v", err)
	}
	s.ended(t)
	err = within(t, "DEL", func() error { return s.Teardown(context.Background(), "a") })
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "300ms") {
		t.Errorf("DEL: error %v", err)
	}
	s.ended(t)
	s.held(t, "a")
}

// TestPluginLeavesDaemon: a plugin's result is accepted although it leaves a process behind that
// has its standard output open.
func TestPluginLeavesDaemon(t *testing.T) {
	s := newStandIn(t)
	s.on(t, "ADD", "a", `sleep 1000 & echo $! >child`)
	ns := nettest.NewNS(t)
	err := within(t, "ADD", func() error { _, err := s.setup(context.Background(), "a", ns); return err })
	if err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(filepath.Join(s.dir, "child"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Errorf("the process that the plugin left: %v", err)
	}
}

// TestNeighbourHangs: while the plugin hangs for one sandbox, other sandboxes are set up and
// released.
func TestNeighbourHangs(t *testing.T) {
	s := newStandIn(t)
	s.connect(t, "a", "b")
	s.on(t, "DEL", "a", hang)
	s.on(t, "ADD", "c", hang)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	ns := nettest.NewNS(t)
	go func() { done <- s.Teardown(ctx, "a") }()
	go func() { _, err := s.setup(ctx, "c", ns); done <- err }()
	s.started(t, "DEL", "a")
	s.started(t, "ADD", "c")
	if err := within(t, "others", func() error {
		_, err := s.setup(t.Context(), "d", nettest.NewNS(t))
		_, onHost := s.Setup(t.Context(), "host", "", nettest.PodWith(t, "host", "8080:80/TCP"))
		err = errors.Join(err, onHost)
		for _, id := range []string{"b", "d", "host"} {
			err = errors.Join(err, s.Teardown(t.Context(), id))
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	// A second call for the same sandbox waits for the first, no longer than its own time.
	short, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	err := within(t, "the same", func() error { return s.Teardown(short, "a") })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the same: error %v", err)
	}
	if n := s.calls(t, "DEL", "a"); n != 1 {
		t.Errorf("%d calls at a time for one sandbox", n)
	}
	cancel()
	for range 2 {
		if err := within(t, "cancelled", func() error { return <-done }); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	}
}

// TestLockWaits: if a stopped process holds the lock that all calls need, no call waits for it
// beyond its context.
func TestLockWaits(t *testing.T) {
	s := newStandIn(t)
	if err := os.MkdirAll(s.dirs.Networks().Bridge(), 0o711); err != nil {
		t.Fatal(err)
	}
	lock, err := sys.LockDir(s.dirs.Networks().Bridge(), 0o711)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	b := s.bridge
	for name, call := range map[string]func(ctx context.Context) error{
		"teardown": func(ctx context.Context) error { return s.Teardown(ctx, "a") },
		"host network": func(ctx context.Context) error {
			_, err := s.Setup(ctx, "a", "", nettest.PodWith(t, "a", "8080:80/TCP"))
			return err
		},
		"bridge": func(ctx context.Context) error {
			_, err := b.Setup(ctx, "a", nettest.Path(nettest.NewNS(t)), nettest.NoPorts)
			return err
		},
		"holders": func(context.Context) error { _, err := s.Holders(); return cmpErr(err, context.DeadlineExceeded) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := within(t, name, func() error { return call(ctx) }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: error %v", name, err)
		}
		cancel()
	}
}

// cmpErr returns fallback if err is nil: what needs no lock does not wait at all.
func cmpErr(err, fallback error) error {
	if err != nil {
		return err
	}
	return fallback
}
