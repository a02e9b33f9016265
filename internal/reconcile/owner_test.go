package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/runtime"
)

// oneOwner is an Owners in which another process owns every pod while other is not "". The pods in
// broken cannot be locked by any process.
type oneOwner struct {
	mu     sync.Mutex
	other  string
	has    map[pod.Key]bool
	let    map[string]int   // how often each was released, by the pods' names
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

func (o *oneOwner) Release(key pod.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.let == nil {
		o.let = map[string]int{}
	}
	o.let[key.Name]++
}

func (o *oneOwner) released(name string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.let[name]
}

// TestLockThatNobodyCanHave: the error is shown on the pod, and other pods run.
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

// TestLostPod: a process neither probes nor restarts a pod that it does not own any more, until it
// owns the pod again.
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

// TestNotOwnedAnyLonger: a pod of another process is shown as such only while a manifest names it.
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

// withholder is an Inspector that reports one pod as owned by a later version of podrun, while that
// is configured.
type withholder struct {
	reconcile.Inspector
	name atomic.Pointer[string]
}

func (w *withholder) Inspect(ctx context.Context, key pod.Key) (pod.Observed, error) {
	if name := w.name.Load(); name != nil && key.Name == *name {
		return pod.Observed{}, fmt.Errorf("inspecting: %w",
			&runtime.WithheldError{Owner: "a later version", Err: errors.New("version 2")})
	}
	return w.Inspector.Inspect(ctx, key)
}

// TestPodOfALaterVersion: the pod's owner is shown, nothing is done to the pod, and other processes
// may acquire it. Other pods run, and so does the pod itself once it can be inspected.
func TestPodOfALaterVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looker, owners := &withholder{}, &oneOwner{}
		looker.name.Store(new("web"))
		h := start(t, forever(), func(o *reconcile.Options) {
			looker.Inspector = o.Inspector
			o.Inspector, o.Owners = looker, owners
		})
		defer h.stop()
		shows := func(want string) {
			t.Helper()
			p := h.board.get("web")
			if p == nil {
				p = &v1.Pod{}
			}
			if p.Status.Reason != want || want != "" && p.Status.Message != "The pod is run by a later version: version 2" {
				t.Errorf("it shows %q, %q", p.Status.Reason, p.Status.Message)
			}
		}
		other := web()
		other.Name, other.UID = "other", "u2"
		h.want(web(), other)
		after(time.Minute)
		h.wantLiving("u2-a-0")
		shows("OwnedByOther")
		if owners.released("web") == 0 {
			t.Error("nobody else may have it")
		}
		looker.name.Store(nil)
		after(5 * time.Minute)
		h.wantLiving("u1-a-0 u2-a-0")
		shows("")
		// A later version had it meanwhile.
		owners.set("podrun serve")
		h.rt.Exit("u1-a-0", 1)
		after(time.Minute)
		looker.name.Store(new("web"))
		owners.set("")
		after(time.Minute)
		shows("OwnedByOther")
		before := h.rt.SandboxIDs()
		h.want(other)
		after(time.Minute)
		h.wantLiving("u2-a-0")
		if now := h.rt.SandboxIDs(); !slices.Equal(now, before) {
			t.Errorf("sandboxes were %v, now %v", before, now)
		}
	})
}

// TestUnwantedPodThatIsLetGo: a pod that no manifest names any more while another process owns it
// is terminated when that process releases it.
func TestUnwantedPodThatIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owners := &oneOwner{}
		h := start(t, forever(), func(o *reconcile.Options) { o.Owners = owners })
		defer h.stop()
		h.want(web())
		h.wantLiving("u1-a-0")
		owners.set("podrun once")
		h.rt.Exit("u1-a-0", 1)
		after(time.Second)
		h.want()
		after(time.Minute)
		if len(h.rt.SandboxIDs()) != 1 {
			t.Errorf("what another process has: %v", h.rt.SandboxIDs())
		}
		owners.set("")
		after(15 * time.Second)
		if left := h.rt.SandboxIDs(); len(left) > 0 || h.board.get("web") != nil {
			t.Errorf("left: %v, shown: %t", left, h.board.get("web") != nil)
		}
	})
}

// TestTakenOverPodThatGoes: when the manifest of a pod is removed its owner is checked again, also
// if many actions were done since the pod was acquired and a call hung meanwhile.
func TestTakenOverPodThatGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := forever()
		h := start(t, rt, func(o *reconcile.Options) { o.Owner = "once" })
		h.want(web())
		h.stop()
		slow := &slowImages{Images: rt}
		h = start(t, rt, func(o *reconcile.Options) {
			o.Images = slow
			o.Terminates = func(seen pod.Observed) bool { return seen.Owner == "serve" }
		})
		defer h.stop()
		rt.Exit("u1-a-0", 1)
		h.want(web())
		after(time.Second)
		h.want()
		after(10 * time.Minute)
		if left := rt.SandboxIDs(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// slowImages resolves images only after five minutes.
type slowImages struct{ runtime.Images }

func (s *slowImages) Resolve(ctx context.Context, ref string) (pod.Image, error) {
	time.Sleep(5 * time.Minute)
	return s.Images.Resolve(ctx, ref)
}

// TestStopAllLeavesThePodsOfOthers: their owner ends them; this process does not wait for that.
func TestStopAllLeavesThePodsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owners := &oneOwner{}
		h := start(t, forever(), func(o *reconcile.Options) {
			o.Owners, o.StopAll = owners, func(time.Duration) bool { return true }
		})
		h.want(web())
		owners.set("podrun once")
		after(time.Minute)
		began := time.Now()
		h.stop()
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %v", took)
		}
		h.wantLiving("u1-a-0")
	})
}
