package containerlog

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/containerlog/cri"
	"podrun.io/podrun/internal/pod"
)

var quiet = slog.New(slog.DiscardHandler)

// run starts the Tailer until the test ends.
func run(t testing.TB, tailer *Tailer) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- tailer.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (r fixture) has(want string) bool {
	b, _ := os.ReadFile(r.log())
	return strings.Contains(string(b), want)
}

func TestFollowAndFinish(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	tailer := New(Options{Dirs: r.dirs, Log: quiet})
	run(t, tailer)
	r.append(cri.Stdout, "before\n")
	tailer.Follow(r.inst, 0)
	eventually(t, "what was there", func() bool { return r.has("stdout F before\n") })
	r.append(cri.Stderr, "live\nun")
	eventually(t, "what came", func() bool { return r.has("stderr F live\n") })
	tailer.Follow(r.inst, 0)
	r.append(cri.Stderr, "ended")
	for range 2 {
		must(t, tailer.Finish(context.Background(), r.inst))
	}
	if got := r.entries(); got != "stdout F before\nstderr F live\nstderr P unended\n" {
		t.Errorf("got %q", got)
	}
	if left, err := os.ReadDir(r.rawDir()); err != nil || len(left) > 0 {
		t.Errorf("raw files are left: %v, %v", left, err)
	}
	eventually(t, "stopped following", func() bool { return tailer.follows() == 0 })
	st, err := os.Stat(r.log())
	must(t, err)
	if st.Mode().Perm() != 0o640 {
		t.Errorf("mode %v", st.Mode())
	}
}

// TestFinishedStaysFinished: other files beside the raw files, such as the termination message,
// stay in their directory. Finish called again, as after a crash, and catchUp, as for a reader of
// the log, lose nothing.
func TestFinishedStaysFinished(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.append(cri.Stdout, "one\n")
	must(t, os.WriteFile(layout.TerminationLog(r.rawDir()), nil, 0o600))
	tailer := New(Options{Dirs: r.dirs, Log: quiet})
	for range 2 {
		must(t, tailer.Finish(context.Background(), r.inst))
		must(t, catchUp(context.Background(), r.dirs, r.inst))
		if got := r.entries(); got != "stdout F one\n" {
			t.Fatalf("got %q", got)
		}
		if entries, err := os.ReadDir(r.rawDir()); err != nil || len(entries) != 1 {
			t.Errorf("left: %v, %v", entries, err)
		}
	}
}

func (t *Tailer) follows() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.followed)
}

func TestForgetAndReturn(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	tailer := New(Options{Dirs: r.dirs, Log: quiet})
	run(t, tailer)
	r.append(cri.Stdout, "first\n")
	tailer.Follow(r.inst, 0)
	eventually(t, "a log", func() bool { return r.has("first") })
	tailer.Forget(r.inst.UID)
	must(t, os.RemoveAll(r.dirs.Root))
	must(t, os.RemoveAll(r.dirs.Log))
	// The same name again, as when a start that failed is repeated.
	must(t, os.MkdirAll(r.rawDir(), 0o755))
	r.append(cri.Stdout, "again\n")
	eventually(t, "the new files", func() bool { tailer.Follow(r.inst, 0); return r.has("again") })
}

func TestFollowOfNothing(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	tailer := New(Options{Dirs: r.dirs, Log: quiet})
	run(t, tailer)
	other := r.inst
	other.ID, other.Attempt = "i2", other.Attempt+1
	tailer.Follow(other, 0)
	eventually(t, "dropped", func() bool { return tailer.follows() == 0 })
	must(t, tailer.Finish(context.Background(), other))
	must(t, catchUp(context.Background(), r.dirs, other))
	if _, err := os.Stat(r.dirs.Revision(other.UID).RawLog(other.Container, other.ID)); !os.IsNotExist(err) {
		t.Errorf("made a directory: %v", err)
	}
}

// TestManyAtOnce: a container that writes very much does not delay the logs of others, and several
// concurrent converters have the same result as one.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	flood := newFixture(t)
	tailer := New(Options{Dirs: flood.dirs, Log: quiet})
	flood.append(cri.Stdout, strings.Repeat("flood\n", 1<<20))
	tailer.Follow(flood.inst, 0)
	small := flood
	small.inst.ID, small.inst.Container = "i2", "small"
	must(t, os.MkdirAll(small.rawDir(), 0o755))
	tailer.Follow(small.inst, 0)
	small.append(cri.Stdout, "quick\n")
	run(t, tailer)
	eventually(t, "the small one", func() bool { return small.has("quick") })

	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := catchUp(context.Background(), flood.dirs, flood.inst); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	must(t, tailer.Finish(context.Background(), flood.inst))
	if got, _ := flood.read(cri.ReadOptions{}); got != strings.Repeat("flood\n", 1<<20) {
		t.Errorf("%d bytes of %d", len(got), 6<<20)
	}
}

// TestFinishWaitsForTheShim: the shim reports an exit before it has copied the last lines.
func TestFinishWaitsForTheShim(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	tailer := New(Options{Dirs: r.dirs, Log: quiet})
	shim, err := os.OpenFile(rawPath(r.rawDir(), cri.Stdout), os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	if !hasWriter(rawPath(r.rawDir(), cri.Stdout)) {
		t.Skip("this file system does not tell of writers")
	}
	if ended(rawDirOf(r.dirs, r.inst)) {
		t.Error("ended while it can still write")
	}
	done := make(chan error)
	go func() { done <- tailer.Finish(context.Background(), r.inst) }()
	_, err = shim.WriteString("last words")
	must(t, err)
	select {
	case <-done:
		t.Fatal("finished while the shim was writing")
	default:
	}
	must(t, shim.Close())
	must(t, <-done)
	if got, _ := r.read(cri.ReadOptions{}); got != "last words" {
		t.Errorf("got %q", got)
	}
	if !ended(rawDirOf(r.dirs, r.inst)) {
		t.Error("not ended")
	}
}

// BenchmarkIdle50: following idle instances must be cheap. It measures allocations and time per
// second for 50 idle instances.
func BenchmarkIdle50(b *testing.B) {
	r := newFixture(b)
	tailer := New(Options{Dirs: r.dirs, Log: quiet})
	run(b, tailer)
	for i := range 50 {
		one := r
		one.inst.UID = pod.UID(fmt.Sprint("u", i))
		must(b, os.MkdirAll(one.rawDir(), 0o755))
		one.append(cri.Stdout, "x\n")
		tailer.Follow(one.inst, 0)
		eventually(b, "followed", func() bool { return one.has("x") })
	}
	for b.Loop() {
		before := cpu(b)
		time.Sleep(4 * time.Second)
		b.ReportMetric(float64((cpu(b)-before).Microseconds())/4, "cpu-us/s")
	}
}

func cpu(t testing.TB) time.Duration {
	var u syscall.Rusage
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
