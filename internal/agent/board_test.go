package agent

import (
	"context"
	"testing"
	"testing/synctest"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
)

// A pod that is heard of twice does not stand for another that is still there.
func TestWaitGone(t *testing.T) {
	t.Parallel()
	files := status.NewFiles(layout.Dirs{Run: t.TempDir()})
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(files, manifest.Desired{}, nil)
		both := map[pod.Key]bool{{Namespace: "default", Name: "a"}: true, {Namespace: "default", Name: "b"}: true}
		done := make(chan bool)
		go func() { b.waitGone(context.Background(), both); close(done) }()
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
