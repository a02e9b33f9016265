package connection

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeDaemon is a daemon in virtual time.
type fakeDaemon struct {
	mu      sync.Mutex
	pid     int // 0: none runs
	blind   bool
	fails   int
	started int
	checks  int
	ended   func()
}

func (d *fakeDaemon) keeper() *keeper {
	return &keeper{
		runs: func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.checks++
			return d.pid != 0
		},
		pid: func() int {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.pid
		},
		watch: func(pid int, ended func()) bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.ended = ended
			return !d.blind && pid == d.pid
		},
		start: func() error {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.fails--; d.fails >= 0 {
				return errors.New("no runc")
			}
			d.started++
			d.pid = 100 + d.started
			return nil
		},
		log: slog.New(slog.DiscardHandler),
	}
}

// die ends the daemon. rings says that the kernel reports it.
func (d *fakeDaemon) die(rings bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pid = 0
	if rings {
		d.ended()
	}
}

// seen returns how often the daemon was started and checked, and its process ID.
func (d *fakeDaemon) seen() (started, checks, pid int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.started, d.checks, d.pid
}

func TestKeep(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		blind, rings bool
		fails        int
		within       time.Duration
	}{
		{name: "the kernel reports the end", rings: true},
		{name: "it does not", within: watchedPoll},
		{name: "it cannot", blind: true, within: keepPoll},
		{name: "the start fails at first", rings: true, fails: 2, within: 2*keepPoll + 4*keepPoll},
		{name: "the start fails for long", blind: true, fails: 50, within: 50 * longestPoll},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := &fakeDaemon{pid: 1, blind: c.blind, fails: c.fails}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go d.keeper().run(ctx)
				for life := range 3 {
					time.Sleep(time.Minute + time.Millisecond)
					synctest.Wait()
					if started, _, pid := d.seen(); started != life || pid == 0 {
						t.Fatalf("%d starts, want %d; process %d", started, life, pid)
					}
					d.die(c.rings)
					time.Sleep(c.within)
					synctest.Wait()
				}
			})
		})
	}
}

// TestKeepIsIdle: while the kernel reports the daemon's end, it is hardly ever checked.
func TestKeepIsIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDaemon{pid: 1}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go d.keeper().run(ctx)
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, checks, _ := d.seen(); checks > 12 || checks == 0 {
			t.Errorf("%d checks a minute", checks)
		}
	})
}
