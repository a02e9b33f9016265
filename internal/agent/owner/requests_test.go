package owner

import (
	"context"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys/watch"
)

// requests returns the requests of an owner, and those of podrun restart beside it.
func requests(t *testing.T) (of, by *Requests) {
	t.Helper()
	dirs := layout.Dirs{Root: t.TempDir(), Run: t.TempDir()}
	for _, dir := range []string{layout.RestartRequests(dirs), dirs.Pod("a"), dirs.Pod("b")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	return NewRequests(dirs, log), NewRequests(dirs, log)
}

func post(t *testing.T, r *Requests, q pod.RestartRequest) {
	t.Helper()
	if err := r.Post(q); err != nil {
		t.Fatal(err)
	}
}

// TestRequestsRing: a request is reported at once, and is there for its own pod until it is answered.
func TestRequestsRing(t *testing.T) {
	t.Parallel()
	of, by := requests(t)
	q := pod.RestartRequest{UID: "a", Container: "c", ID: "1"}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- of.Run(ctx) }()
	for range 2 {
		post(t, by, q)
		select {
		case <-of.Changed:
		case <-time.After(requestPoll / 2): // less than any poll
			t.Fatal("not reported")
		}
		if got := of.Of("a"); len(got) != 1 || got[0] != q {
			t.Fatalf("got %v", got)
		}
		if got := of.Of("b"); len(got) > 0 {
			t.Fatalf("another pod got %v", got)
		}
		of.Remove(q)
		if got := of.Of("a"); len(got) > 0 || by.Pending(q) {
			t.Fatalf("answered, but got %v", got)
		}
	}
	cancel()
	<-done
}

// TestRequestsWithoutRun: a process that does not run Run reads the disk.
func TestRequestsWithoutRun(t *testing.T) {
	t.Parallel()
	of, by := requests(t)
	q := pod.RestartRequest{UID: "a", Container: "c"}
	post(t, by, q)
	if got := of.Of("a"); len(got) != 1 || got[0] != q {
		t.Fatalf("got %v", got)
	}
}

// TestRequestsAtRest: a request that nobody answers wakes all pods seldom, one that was not reported is found,
// and one for a pod that is gone is removed.
func TestRequestsAtRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		of, by := requests(t)
		of.watch = watch.Silent(of.log) // every report is lost
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var rung atomic.Int64
		go func() {
			for {
				select {
				case <-of.Changed:
					rung.Add(1)
				case <-ctx.Done():
					return
				}
			}
		}()
		go func() { _ = of.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		if n := rung.Load(); n != 0 {
			t.Errorf("rung %d times without a request", n)
		}
		gone := pod.RestartRequest{UID: "gone", Container: "c", ID: "1"}
		post(t, by, gone)
		post(t, by, pod.RestartRequest{UID: "a", Container: "c", ID: "1"})
		time.Sleep(requestCheck + time.Second)
		if n := rung.Load(); n != 1 || by.Pending(gone) {
			t.Errorf("rung %d times in the first minute; %v is pending: %v", n, gone, by.Pending(gone))
		}
		time.Sleep(10 * time.Minute)
		if n := rung.Load(); n != 11 {
			t.Errorf("rung %d times in 11 minutes", n)
		}
	})
}
