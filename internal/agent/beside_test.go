package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/agent/result"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/runtime/fake"
)

const besideManifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers: [{name: c, image: \"web:1\"}]\n"

// serveUntil runs a serve until stop is called, which returns when serve has ended.
func serveUntil(t *testing.T, o Options, stopPods bool) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Serve(ctx, o, stopPods) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// all picks all pods.
func all(pods []*v1.Pod) ([]*v1.Pod, error) { return pods, nil }

// TestDownBesideServe: while serve runs, down removes pods that no process owns, but not serve's.
func TestDownBesideServe(t *testing.T) {
	rt := fake.New("boot-1")
	rt.AddImage("web:1", fake.Script{})
	o := simulated(t, rt)
	path := filepath.Join(o.Sources.Manifests[0], "web.yaml")
	write := func(name string) {
		if err := os.WriteFile(path, []byte(strings.Replace(besideManifest, "web}", name+"}", 1)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("left")
	synctest.Test(t, func(t *testing.T) {
		if result, err := Once(t.Context(), o, OnceOptions{}); err != nil || phases(result) != "left-n=Running" {
			t.Errorf("%s, %v", phases(result), err)
		}
		write("web")
		stop := serveUntil(t, o, false)
		time.Sleep(time.Minute)
		owned := (*owner.OwnedError)(nil)
		if gone, err := Down(t.Context(), o, DownOptions{Pick: all}); !errors.Is(err, owner.ErrServing) || !errors.As(err, &owned) || owned.Key.Name != "web-n" || len(gone) > 0 {
			t.Errorf("removed %v, %v", gone, err)
		}
		if seen, err := rt.List(t.Context()); err != nil || len(seen) != 2 {
			t.Errorf("a refused down: %+v, %v", seen, err)
		}
		gone, err := Down(t.Context(), o, DownOptions{Pick: func(pods []*v1.Pod) ([]*v1.Pod, error) {
			return slices.DeleteFunc(pods, func(p *v1.Pod) bool { return p.Name != "left-n" }), nil
		}})
		if err != nil || len(gone) != 1 || gone[0].Name != "left-n" {
			t.Errorf("removed %v, %v", gone, err)
		}
		time.Sleep(time.Minute)
		seen, err := rt.List(t.Context())
		if err != nil || len(seen) != 1 || seen[0].Key.Name != "web-n" || len(rt.Ran()) != 2 {
			t.Errorf("%+v, %v; ran %v", seen, err, rt.Ran())
		}
		stop()
	})
}

// TestServeAndOnceOfOnePod: one process at a time owns a pod. A once is refused while serve owns
// it. A serve waits for the end of a once, shows that meanwhile, and adopts what once leaves
// running.
func TestServeAndOnceOfOnePod(t *testing.T) {
	rt := fake.New("boot-1")
	rt.AddImage("web:1", fake.Script{})
	o := simulated(t, rt)
	path := filepath.Join(o.Sources.Manifests[0], "web.yaml")
	if err := os.WriteFile(path, []byte(besideManifest), 0o644); err != nil {
		t.Fatal(err)
	}
	web := pod.Key{Namespace: "default", Name: "web-n"}
	noted := func() bool { _, err := os.Lstat(o.Dirs.StatusFiles().NotOwned(web)); return err == nil }
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		onceDone := make(chan struct{})
		go func() {
			defer close(onceDone)
			result, err := Once(t.Context(), o, OnceOptions{Finished: func(result.Result) { <-release }})
			if err != nil || phases(result) != "web-n=Running" {
				t.Errorf("%s, %v", phases(result), err)
			}
		}()
		time.Sleep(10 * time.Second)
		stop := serveUntil(t, o, false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if !noted() {
			t.Error("get does not show that once has the pod")
		}
		owned := (*owner.OwnedError)(nil)
		if _, err := Down(t.Context(), o, DownOptions{Pick: all}); errors.Is(err, owner.ErrServing) || !errors.As(err, &owned) || owned.Serve ||
			!strings.Contains(owned.Holder, "podrun once (process") {
			t.Errorf("down beside serve: %v", err)
		}
		close(release)
		<-onceDone
		time.Sleep(time.Second)
		synctest.Wait()
		if noted() {
			t.Error("get shows still that once has the pod")
		}
		owned = nil
		calls := len(rt.Calls())
		if _, err := Once(t.Context(), o, OnceOptions{}); !errors.As(err, &owned) || !owned.Serve || !strings.Contains(owned.Holder, "podrun serve (process") {
			t.Errorf("once beside serve: %v", err)
		}
		for _, call := range rt.Calls()[calls:] {
			t.Errorf("the refused once called %s", call)
		}
		if ran := strings.Join(rt.Ran(), " "); len(rt.Ran()) != 1 {
			t.Errorf("it was not adopted as it was: ran %s", ran)
		}
		stop()
	})
}

// TestServeLeavesOncesPods: a serve without a manifest of a pod that once left running leaves it
// alone, also when the serve terminates its own pods.
func TestServeLeavesOncesPods(t *testing.T) {
	rt := fake.New("boot-1")
	rt.AddImage("web:1", fake.Script{})
	o := simulated(t, rt)
	path := filepath.Join(o.Sources.Manifests[0], "web.yaml")
	if err := os.WriteFile(path, []byte(besideManifest), 0o644); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		if result, err := Once(t.Context(), o, OnceOptions{}); err != nil || phases(result) != "web-n=Running" {
			t.Errorf("%s, %v", phases(result), err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		stop := serveUntil(t, o, true)
		time.Sleep(time.Minute)
		stop()
		all, err := rt.List(t.Context())
		if err != nil || len(all) != 1 || len(all[0].Containers) != 1 || all[0].Containers[0].State != pod.Running || len(rt.Ran()) != 1 {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// TestServeTakesAndRemoves: a pod that once left running is removed if its manifest is added to
// serve and removed at once.
func TestServeTakesAndRemoves(t *testing.T) {
	rt := fake.New("boot-1")
	rt.AddImage("web:1", fake.Script{})
	o := simulated(t, rt)
	o.Sources.FileCheckFrequency = time.Second
	path := filepath.Join(o.Sources.Manifests[0], "web.yaml")
	write := func() {
		if err := os.WriteFile(path, []byte(besideManifest), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write()
	synctest.Test(t, func(t *testing.T) {
		if result, err := Once(t.Context(), o, OnceOptions{}); err != nil || phases(result) != "web-n=Running" {
			t.Errorf("%s, %v", phases(result), err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		stop := serveUntil(t, o, false)
		time.Sleep(15 * time.Second)
		write()
		time.Sleep(2 * time.Second)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if all, err := rt.List(t.Context()); err != nil || len(all) != 0 || len(rt.Ran()) != 1 {
			t.Errorf("%+v, %v", all, err)
		}
		stop()
	})
}

// TestPodWithoutUsableLock: something that is not a usable lock file prevents only its own pod from
// running under serve, which shows the error. once, down and a signal still work.
func TestPodWithoutUsableLock(t *testing.T) {
	rt := fake.New("boot-1")
	rt.AddImage("web:1", fake.Script{})
	o := simulated(t, rt)
	for _, name := range []string{"web", "other"} {
		text := strings.ReplaceAll(besideManifest, "name: web}", "name: "+name+"}")
		if err := os.WriteFile(filepath.Join(o.Sources.Manifests[0], name+".yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	web := pod.Key{Namespace: "default", Name: "web-n"}
	if err := errors.Join(os.MkdirAll(o.Dirs.PodLocks(), 0o700), os.Symlink(t.TempDir(), o.Dirs.PodLock(web))); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		failed := (*reconcile.LockError)(nil)
		if _, err := Once(t.Context(), o, OnceOptions{}); !errors.As(err, &failed) || len(rt.Calls()) > 0 {
			t.Errorf("once: %v, it called %v", err, rt.Calls())
		}
		stop := serveUntil(t, o, false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if note, err := os.ReadFile(o.Dirs.StatusFiles().NotOwned(web)); err != nil || !strings.Contains(string(note), "FailedLock") {
			t.Errorf("it shows %s, %v", note, err)
		}
		if len(rt.Ran()) != 1 {
			t.Errorf("ran %v", rt.Ran())
		}
		stop()
		all := func(pods []*v1.Pod) ([]*v1.Pod, error) { return pods, nil }
		if gone, err := Down(t.Context(), o, DownOptions{Pick: all}); err != nil || len(gone) != 1 {
			t.Errorf("down: %v, %v", gone, err)
		}
	})
}

// TestLostPodOfOnce: a pod whose lock another process has acquired while once runs is left alone,
// and is reported as left.
func TestLostPodOfOnce(t *testing.T) {
	onFake(t, func(r *onceTest) {
		key := pod.Key{Namespace: "default", Name: "slow-n"}
		other := owner.NewLocks(r.o.Dirs, owner.Once)
		r.once.Timeout = 10 * time.Second
		time.AfterFunc(5*time.Second, func() {
			if err := os.Remove(r.o.Dirs.PodLock(key)); err != nil {
				t.Error(err)
			}
			if holder, _, err := other.Acquire(key); holder != "" || err != nil {
				t.Errorf("got %q, %v", holder, err)
			}
		})
		result, err := r.run(onceManifest("slow", "Never", "slow:1"))
		if err != nil || !result.TimedOut || len(result.Left) != 1 || result.Left[0].Why == nil || !strings.Contains(result.Left[0].Why.Error(), "run by podrun once") {
			t.Errorf("%+v, %v", result, err)
		}
		if got, err := r.runtime.Inspect(t.Context(), key); err != nil || len(got.Containers) != 1 || got.Containers[0].State != pod.Running {
			t.Errorf("%+v, %v", got, err)
		}
		if holder, fresh, err := other.Acquire(key); holder != "" || fresh || err != nil {
			t.Errorf("got %q, fresh %t, %v", holder, fresh, err)
		}
	})
}
