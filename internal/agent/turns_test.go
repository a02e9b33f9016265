package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/pod"
)

// TestTurns: one at a time is at a pod, knows when others were, and needs not wait for those at other pods.
func TestTurns(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Run: t.TempDir()}
	mine, others := turns{dirs, slog.New(slog.DiscardHandler)}, turns{dirs, slog.New(slog.DiscardHandler)} // as of two processes
	key, another := pod.Key{Namespace: "default", Name: "web"}, pod.Key{Namespace: "default", Name: "db"}
	take := func(of turns, key pod.Key, since int64) func() int64 {
		t.Helper()
		done, err := of.Take(t.Context(), key, since)
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	done := take(mine, key, 0)
	during := others.Begun(key)
	if done == nil || during == 0 {
		t.Fatalf("the first turn cannot be taken, or is not seen")
	}
	take(others, another, 0)()
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if late, err := others.Take(short, key, during); late != nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("two at a pod: %v", err)
	}
	after := done()
	for _, since := range []int64{0, during} {
		if take(others, key, since) != nil {
			t.Errorf("a turn was taken on the ground of what was seen before another's end, at %d", since)
		}
	}
	after = take(mine, key, take(others, key, after)())()
	// What was seen while one was at it that was killed then is out of date too.
	f, err := mine.lock(t.Context(), dirs.Turn(key))
	if err != nil {
		t.Fatal(err)
	}
	mine.count(f, after+1)
	seen := others.Begun(key)
	unlockTurn(f)
	if take(others, key, seen) != nil {
		t.Error("a turn was taken on the ground of what was seen within another")
	}
	take(others, key, others.Begun(key))()
	mine.Forget(key)
	if _, err := os.Stat(dirs.Turn(key)); !errors.Is(err, os.ErrNotExist) || mine.Begun(key) != 0 {
		t.Errorf("of a pod that is gone there is left: %v", err)
	}
}

// TestTurnsForgotten: two are never let at a pod though those who are done with it remove its file.
func TestTurnsForgotten(t *testing.T) {
	t.Parallel()
	of := turns{layout.Dirs{Run: t.TempDir()}, slog.New(slog.DiscardHandler)}
	key := pod.Key{Namespace: "default", Name: "web"}
	var mu sync.Mutex
	var working sync.WaitGroup
	for range 4 {
		working.Go(func() {
			for took := 0; took < 25; {
				done, err := of.Take(t.Context(), key, of.Begun(key))
				if err != nil {
					t.Error(err)
					return
				}
				if done == nil {
					continue
				}
				if !mu.TryLock() {
					t.Error("two at a pod")
					return
				}
				took++
				time.Sleep(time.Microsecond) // lets others try
				mu.Unlock()
				done()
				of.Forget(key)
			}
		})
	}
	working.Wait()
}
