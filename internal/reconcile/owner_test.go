package reconcile_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
)

// oneOwner is Owners of which another process has every pod as long as other is not "".
type oneOwner struct {
	mu    sync.Mutex
	other string
}

func (o *oneOwner) set(other string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.other = other
}

func (o *oneOwner) Acquire(pod.Key) (holder string, fresh bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.other, o.other == "", nil
}

func (o *oneOwner) Release(pod.Key) {}

// TestNotOwnedAnyLonger: a pod that another process has is shown so only as long as a manifest names it.
func TestNotOwnedAnyLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owners := &oneOwner{other: "podrun once"}
		h := start(t, forever(), func(o *reconcile.Options) { o.Owners = owners })
		defer h.stop()
		shows := func(want bool) {
			t.Helper()
			if p := h.board.get("web"); (p != nil && p.Status.Reason == "OwnedByOther") != want {
				t.Errorf("OwnedByOther: want %t, it shows %v", want, p)
			}
		}
		h.want(web())
		shows(true)
		h.want()
		after(time.Second)
		shows(false)
		h.want(web())
		shows(true)
		h.wantLiving("")
		owners.set("")
		after(time.Second)
		shows(false)
		h.wantLiving("u1-a-0")
	})
}
