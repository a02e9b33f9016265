package reconcile_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
)

// oneOwner is Owners of which another process has every pod as long as other is not "", and of which nobody can have
// those in broken.
type oneOwner struct {
	mu     sync.Mutex
	other  string
	has    map[pod.Key]bool
	broken map[string]error // by the pods' names
}

func (o *oneOwner) set(other string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.other = other
}

func (o *oneOwner) Acquire(key pod.Key) (holder string, fresh bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.has == nil {
		o.has = map[pod.Key]bool{}
	}
	had := o.has[key]
	o.has[key] = o.other == "" && o.broken[key.Name] == nil
	return o.other, o.has[key] && !had, o.broken[key.Name]
}

func (o *oneOwner) Release(pod.Key) {}

// TestLockThatNobodyCanHave: it is shown on its pod, and other pods run.
func TestLockThatNobodyCanHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owners := &oneOwner{broken: map[string]error{"web": &reconcile.LockError{Err: errors.New("no lock")}}}
		h := start(t, forever(), func(o *reconcile.Options) { o.Owners = owners })
		defer h.stop()
		other := web()
		other.Name, other.UID = "other", "u2"
		h.want(web(), other)
		if p := h.board.get("web"); p == nil || p.Status.Reason != "FailedLock" || !strings.Contains(p.Status.Message, "no lock") {
			t.Errorf("it shows %v", p)
		}
		h.wantLiving("u2-a-0")
		owners.mu.Lock()
		clear(owners.broken)
		owners.mu.Unlock()
		after(time.Minute)
		h.wantLiving("u1-a-0 u2-a-0")
		if p := h.board.get("web"); p == nil || p.Status.Reason != "" {
			t.Errorf("it shows %v", p)
		}
	})
}

// TestLostPod: what a process has no longer, it neither asks how it is nor starts again, until it has it again.
func TestLostPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owners := &oneOwner{}
		h := start(t, forever(), func(o *reconcile.Options) { o.Owners = owners })
		defer h.stop()
		h.want(web())
		h.wantLiving("u1-a-0")
		owners.set("podrun once")
		h.rt.Exit("u1-a-0", 1)
		after(time.Minute)
		if p := h.board.get("web"); p == nil || p.Status.Reason != "OwnedByOther" {
			t.Errorf("it shows %v", p)
		}
		h.wantLiving("")
		owners.set("")
		after(time.Second)
		h.wantLiving("u1-a-1")
		if p := h.board.get("web"); p == nil || p.Status.Reason != "" {
			t.Errorf("it shows %v", p)
		}
	})
}

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
