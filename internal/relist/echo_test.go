package relist

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// TestEchoes: an echo of an event that a later inspection covers causes no inspection, every other
// wakeup does, and an inspection that fails leaves no gap.
func TestEchoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := pod.Key{Namespace: "default", Name: "web"}
		w := &world{now: map[pod.Key]pod.Observed{}}
		heard := &ledger{}
		r := New(Options{Lister: w, Notifier: w, Observer: heard, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		var actor sync.WaitGroup
		actor.Go(func() { _ = r.Run(ctx, make(chan Event)) })
		count := func(do func()) (looks, lists int) {
			heard.mu.Lock()
			looks, lists = heard.looks, heard.lists
			heard.mu.Unlock()
			do()
			time.Sleep(2 * DefaultPeriod)
			synctest.Wait()
			heard.mu.Lock()
			defer heard.mu.Unlock()
			return heard.looks - looks, heard.lists - lists
		}
		check := func(what string, wantLooks, wantLists int, do func()) {
			t.Helper()
			if looks, lists := count(do); looks != wantLooks || lists != wantLists {
				t.Errorf("%s: %d looks, %d lists; want %d, %d", what, looks, lists, wantLooks, wantLists)
			}
		}
		ring := func(ring runtime.Wakeup) {
			ring.Key = key
			w.rings <- ring
		}
		time.Sleep(time.Second)
		before := time.Now()
		time.Sleep(time.Second)
		if _, err := r.Inspect(ctx, key); err != nil {
			t.Fatal(err)
		}
		check("an old echo", 0, 0, func() { ring(runtime.Wakeup{At: before, Echo: true}) })
		check("an old event that is no echo", 1, 0, func() { ring(runtime.Wakeup{At: before}) })
		check("a new echo", 1, 0, func() { ring(runtime.Wakeup{At: time.Now(), Echo: true}) })
		check("a look that fails", 1, 1, func() {
			w.mu.Lock()
			w.fail = errors.New("down")
			w.mu.Unlock()
			if _, err := r.Inspect(ctx, key); err == nil {
				t.Error("no error")
			}
			w.mu.Lock()
			w.fail = nil
			w.mu.Unlock()
		})
		cancel()
		actor.Wait()
	})
}
