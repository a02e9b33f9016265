package pidfd_test

import (
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"podrun.io/podrun/internal/sys/pidfd"
)

func watcher(t *testing.T) *pidfd.Watcher {
	t.Helper()
	w := &pidfd.Watcher{}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// sleeper starts a process. It is a zombie from its end until the test ends.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return c
}

// TestEnds: each of many ends is told of once, though nobody has waited for the process yet, and
// processes that run are not told of.
func TestEnds(t *testing.T) {
	t.Parallel()
	w := watcher(t)
	ended := make(chan int, 1000)
	var all []*exec.Cmd
	for i := range 100 {
		c := sleeper(t)
		all = append(all, c)
		if !w.Watch(c.Process.Pid, func() { ended <- i }) {
			t.Fatal("a process that runs cannot be watched")
		}
	}
	want := map[int]bool{}
	for i := 0; i < len(all); i += 2 {
		want[i] = true
		if err := all[i].Process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	for len(want) > 0 {
		select {
		case i := <-ended:
			if !want[i] {
				t.Fatalf("%d was told of, but runs or was told of before", i)
			}
			delete(want, i)
		case <-time.After(time.Minute):
			t.Fatalf("not told of: %v", want)
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if len(ended) > 0 {
		t.Errorf("%d was told of, but runs or was told of before", <-ended)
	}
}

// TestZombie: the end of a process that has ended already, and that nobody has waited for, is told of.
func TestZombie(t *testing.T) {
	t.Parallel()
	w, c := watcher(t), sleeper(t)
	first, second := make(chan bool, 1), make(chan bool, 1)
	if !w.Watch(c.Process.Pid, func() { first <- true }) {
		t.Fatal("cannot be watched")
	}
	_ = c.Process.Kill()
	<-first
	if !w.Watch(c.Process.Pid, func() { second <- true }) {
		t.Fatal("a zombie cannot be watched")
	}
	<-second
}

// TestNoProcess: what is not there cannot be watched, nor can anything once the Watcher is closed.
func TestNoProcess(t *testing.T) {
	t.Parallel()
	w, c := watcher(t), sleeper(t)
	var told atomic.Bool
	_ = c.Process.Kill()
	_ = c.Wait()
	if w.Watch(c.Process.Pid, func() { told.Store(true) }) {
		t.Error("a process that is gone is watched")
	}
	c = sleeper(t)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if w.Watch(c.Process.Pid, func() { told.Store(true) }) {
		t.Error("a closed Watcher watches")
	}
	if told.Load() {
		t.Error("told of an end")
	}
}
