package relist

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// kernel knows of every process, but of those with a negative PID.
type kernel struct {
	mu      sync.Mutex
	watched map[int][]func()
}

func (k *kernel) Watch(pid int, ended func()) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if pid > 0 {
		k.watched[pid] = append(k.watched[pid], ended)
	}
	return pid > 0
}

func (k *kernel) end(pid int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, ended := range k.watched[pid] {
		ended()
	}
	delete(k.watched, pid)
}

// machineWith is a runtime with the containers in one pod, a kernel, and a relister that runs.
type machineWith struct {
	*world
	kernel *kernel
	key    pod.Key
	// relister is the one that runs.
	relister *Relister
	mu       sync.Mutex
	events   []string
	before   int // full lists when within last returned
	stop     func()
}

func startMachine(t *testing.T, containers ...pod.Container) *machineWith {
	key := pod.Key{Namespace: "default", Name: "p"}
	m := &machineWith{
		world:  &world{now: map[pod.Key]pod.Observed{key: {Key: key, Containers: containers}}},
		kernel: &kernel{watched: map[int][]func(){}}, key: key,
	}
	r := New(Options{Lister: m, Notifier: m, Processes: m.kernel, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	m.relister = r
	ctx, cancel := context.WithCancel(t.Context())
	events := make(chan Event)
	var actors sync.WaitGroup
	actors.Go(func() { _ = r.Run(ctx, events) })
	actors.Go(func() {
		for {
			select {
			case e := <-events:
				m.mu.Lock()
				m.events = append(m.events, e.Kind.String()+" "+e.ID)
				m.mu.Unlock()
			case <-ctx.Done():
				return
			}
		}
	})
	m.stop = func() { cancel(); actors.Wait() }
	return m
}

// exit ends the process of the pod's first container as the runtime sees it.
func (m *machineWith) exit() {
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	m.now[m.key].Containers[0].State, m.now[m.key].Containers[0].PID = pod.Exited, 0
}

func (m *machineWith) ring() { m.rings <- runtime.Wakeup{Key: m.key, At: time.Now()} }

// within waits for d and returns the events and the number of full lists since it last returned.
func (m *machineWith) within(d time.Duration) (events string, lists int) {
	time.Sleep(d)
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	events, lists = strings.Join(m.events, ", "), m.lists-m.before
	m.events, m.before = nil, m.lists
	return events, lists
}

// gaps returns the seconds between the full lists of the next six minutes, without those that
// repeat the one before.
func (m *machineWith) gaps() (all []int) {
	last := 0
	for i := range 360 {
		if _, n := m.within(time.Second); n == 0 {
			continue
		}
		if last > 0 {
			all = append(all, i-last)
		}
		last = i
	}
	return slices.Compact(all)
}

// TestPeriodGrows: the less a full list finds, the later comes the next one, but only if the kernel
// tells of the ends of all processes.
func TestPeriodGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMachine(t, pod.Container{ID: "a", State: pod.Running, PID: 7})
		m.within(500 * time.Millisecond) // one list or two: the event stream may come before or after the first
		if got := m.gaps(); !slices.Equal(got, []int{20, 40, 60}) && !slices.Equal(got, []int{40, 60}) {
			t.Errorf("seconds between lists: %v", got)
		}
		m.exit() // found by the next list; nothing has told of it
		if got, want := m.gaps(), []int{1, 2, 4, 8, 16, 32, 60}; !slices.Equal(got, want) {
			t.Errorf("seconds between lists after a surprise: %v, want %v", got, want)
		}
		m.stop()
	})
	for name, unknown := range map[string]pod.Container{
		"that the kernel cannot watch": {ID: "a", State: pod.Running, PID: -7}, "without a PID": {ID: "a", State: pod.Running},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := startMachine(t, unknown)
			m.within(500 * time.Millisecond)
			if _, n := m.within(3 * time.Minute); n != 18 {
				t.Errorf("a process %s: %d lists, want 18", name, n)
			}
			m.stop()
		})
	}
}

// midway runs do on a machine with one container, in the middle between two full lists.
func midway(t *testing.T, do func(m *machineWith)) {
	synctest.Test(t, func(t *testing.T) {
		m := startMachine(t, pod.Container{ID: "a", State: pod.Running, PID: 7})
		defer m.stop()
		m.within(35 * time.Second)
		do(m)
	})
}

// TestLostEvent: an end of which no event tells is noticed as soon as the event is overdue.
func TestLostEvent(t *testing.T) {
	midway(t, func(m *machineWith) {
		m.exit()
		m.kernel.end(7)
		if events, n := m.within(eventDelay + time.Millisecond); events != "died a" || n > 0 {
			t.Errorf("%q and %d lists", events, n)
		}
	})
}

// TestEventInTime: an end of which an event tells in time causes nothing else.
func TestEventInTime(t *testing.T) {
	midway(t, func(m *machineWith) {
		m.kernel.end(7)
		m.exit()
		m.within(eventDelay / 2)
		m.ring()
		if events, n := m.within(20 * time.Second); events != "died a" || n > 0 {
			t.Errorf("%q and %d lists", events, n)
		}
	})
}

// TestRuntimeDoesNotSeeTheEnd: a process that has ended, and that the runtime goes on to call
// running, causes one full list soon and is not asked for over and over.
func TestRuntimeDoesNotSeeTheEnd(t *testing.T) {
	midway(t, func(m *machineWith) {
		m.kernel.end(7)
		if events, n := m.within(2 * time.Second); events != "" || n != 1 {
			t.Errorf("%q and %d lists, want one", events, n)
		}
		if events, n := m.within(18 * time.Second); events != "" || n > 1 {
			t.Errorf("%q and %d lists more", events, n)
		}
		m.exit()
		m.ring()
		if events, _ := m.within(time.Second); events != "died a" {
			t.Errorf("%q", events)
		}
	})
}
