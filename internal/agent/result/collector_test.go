package result

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
)

// TestWaitGone: a pod that is reported as removed twice does not count for another pod that is
// still there.
func TestWaitGone(t *testing.T) {
	t.Parallel()
	files := status.NewFiles(layout.Dirs{Run: t.TempDir()})
	synctest.Test(t, func(t *testing.T) {
		b := NewCollector(files, manifest.Desired{}, nil)
		both := map[pod.Key]bool{{Namespace: "default", Name: "a"}: true, {Namespace: "default", Name: "b"}: true}
		done := make(chan bool)
		go func() { b.WaitGone(context.Background(), both); close(done) }()
		gone := func(name string) {
			if err := b.Gone(pod.Key{Namespace: "default", Name: name}); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		gone("a")
		gone("a")
		select {
		case <-done:
			t.Error("it waits no more though one is still there")
		default:
		}
		gone("b")
		<-done
	})
}

// TestAwaitRemoval: down gives up a pod that cannot be removed and reports it, but not before its
// grace period is over, nor while other pods are being removed.
func TestAwaitRemoval(t *testing.T) {
	t.Parallel()
	files := status.NewFiles(layout.Dirs{Run: t.TempDir()})
	synctest.Test(t, func(t *testing.T) {
		b := NewCollector(files, manifest.Desired{}, nil)
		stuck, slow := pod.Key{Namespace: "default", Name: "stuck"}, pod.Key{Namespace: "default", Name: "slow"}
		both := map[pod.Key]bool{stuck: true, slow: true}
		ended := make(chan []Left, 1)
		begun := time.Now()
		go func() { ended <- b.AwaitRemoval(t.Context(), both, Removal{Log: slog.New(slog.DiscardHandler)}) }()
		go func() {
			for time.Since(begun) < 6*time.Minute {
				b.Troubled(stuck, errors.New("is mounted"))
				time.Sleep(20 * time.Second)
			}
		}()
		time.Sleep(5 * time.Minute) // the slow one does not fail
		if err := b.Gone(slow); err != nil {
			t.Error(err)
		}
		left := <-ended
		took := time.Since(begun)
		time.Sleep(2 * time.Minute) // until nothing fails any more
		if took < 5*time.Minute+removalPatience || took > 6*time.Minute {
			t.Errorf("given up after %v", took)
		}
		gone, err := Removed(both, left)
		if len(gone) != 1 || gone[0] != slow || err == nil || err.Error() != "pod default/stuck is not removed: is mounted" {
			t.Errorf("%v, %v", gone, err)
		}
	})
}

// TestRemovalTakesLong: the log says why the first pod is not removed yet, if anything has failed for it.
func TestRemovalTakesLong(t *testing.T) {
	t.Parallel()
	files := status.NewFiles(layout.Dirs{Run: t.TempDir()})
	for want, trouble := range map[string]error{
		"msg=\"pods are still being removed\" pods=1 first=default/slow\n":                    nil,
		"msg=\"pods are still being removed\" pods=1 first=default/slow err=\"is mounted\"\n": errors.New("is mounted"),
	} {
		synctest.Test(t, func(t *testing.T) {
			b := NewCollector(files, manifest.Desired{}, nil)
			slow := pod.Key{Namespace: "default", Name: "slow"}
			var log bytes.Buffer
			if trouble != nil {
				b.Troubled(slow, trouble)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			b.AwaitRemoval(ctx, map[pod.Key]bool{slow: true}, Removal{Log: slog.New(slog.NewTextHandler(&log, nil))})
			if !strings.Contains(log.String(), want) {
				t.Errorf("%v: %s", trouble, &log)
			}
		})
	}
}
