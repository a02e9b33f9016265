package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/test"
)

// TestDownBesideAnother: two of them do not wait for each other, and neither ends the other's pods.
func TestDownBesideAnother(t *testing.T) {
	onFake(t, func(r *onceTest) {
		r.mustRun(onceManifest("a", "Always", "web:1"))
		r.mustRun(onceManifest("b", "Always", "web:1"))
		other, err := owner.LockRun(r.o.Dirs, owner.Down)
		test.Must(t, err)
		defer other.Unlock()
		has := r.o.newLocks(owner.Down)
		defer has.Close()
		_, _, err = has.Acquire(pod.Key{Namespace: "default", Name: "b-n"})
		test.Must(t, err)
		down := func(name string) error {
			_, err := Down(r.ctx, r.o, DownOptions{Pick: func(pods []*v1.Pod) ([]*v1.Pod, error) {
				return slices.DeleteFunc(pods, func(p *v1.Pod) bool { return p.Name != name }), nil
			}})
			return err
		}
		if err := down("a-n"); err != nil {
			t.Error(err)
		}
		if err := down("b-n"); !errors.As(err, new(*owner.OwnedError)) {
			t.Errorf("a pod that the other one has: %v", err)
		}
		if there := r.there(); !strings.Contains(there, "b-n") || strings.Contains(there, "a-n") {
			t.Errorf("there is %s", there)
		}
	})
}

// TestDownInterrupted: the pods that are gone by then are named.
func TestDownInterrupted(t *testing.T) {
	onFake(t, func(r *onceTest) {
		r.mustRun(strings.Replace(onceManifest("a", "Always", "web:1"), "name: c,", "name: deaf,", 1))
		r.mustRun(onceManifest("b", "Always", "web:1"))
		r.runtime.IgnoreTerm("deaf")
		r.after(5*time.Second, r.interrupt)
		gone, err := Down(r.ctx, r.o, DownOptions{Pick: func(pods []*v1.Pod) ([]*v1.Pod, error) { return pods, nil }})
		if !errors.Is(err, context.Canceled) || len(gone) != 1 || gone[0].Name != "b-n" {
			t.Errorf("%v, %v", gone, err)
		}
	})
}

// TestDownSaysWhatItWaitsFor: what a removal waits for is reported after some seconds, and again
// when it changes. An interrupt ends the wait, even if something hangs.
func TestDownSaysWhatItWaitsFor(t *testing.T) {
	const containers = "a-n: its containers to end"
	const sandbox = "a-n: its network and its sandbox to be removed"
	hangs := func(r *onceTest) { r.o.backend = hungRemovals{r.runtime, 41 * time.Second} }
	for _, c := range []struct {
		name        string
		prepare     func(r *onceTest)
		interrupt   time.Duration // 0: never
		said        []string
		least, most time.Duration
	}{
		{name: "quick", prepare: func(*onceTest) {}, most: time.Second},
		{name: "hung", prepare: hangs, said: []string{sandbox}, least: 41 * time.Second, most: 42 * time.Second},
		{name: "deaf", prepare: func(r *onceTest) { hangs(r); r.runtime.IgnoreTerm("c") },
			said: []string{containers, sandbox}, least: 71 * time.Second, most: 72 * time.Second},
		{name: "failing", prepare: func(r *onceTest) { r.runtime.Fail("RemoveSandbox", errors.New("no")) },
			interrupt: 5 * time.Second,
			said:      []string{sandbox + "; it failed: remove sandbox a-sandbox-0 (not wanted): no"}, least: 5 * time.Second, most: 6 * time.Second},
		{name: "hung, interrupted", prepare: hangs, interrupt: 5 * time.Second,
			said: []string{sandbox}, least: 5 * time.Second, most: 6 * time.Second},
		{name: "deaf, interrupted", prepare: func(r *onceTest) { r.runtime.IgnoreTerm("c") }, interrupt: 5 * time.Second,
			said: []string{containers}, least: 5 * time.Second, most: 6 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			onFake(t, func(r *onceTest) {
				r.mustRun(onceManifest("a", "Always", "web:1"))
				c.prepare(r)
				if c.interrupt > 0 {
					r.after(c.interrupt, r.interrupt)
				}
				var mu sync.Mutex // what hangs goes on beside Down's end
				var said []string
				began := time.Now()
				gone, err := Down(r.ctx, r.o, DownOptions{
					Pick: func(pods []*v1.Pod) ([]*v1.Pod, error) { return pods, nil },
					Waiting: func(key pod.Key, what string) {
						mu.Lock()
						defer mu.Unlock()
						said = append(said, key.Name+": "+what)
					},
				})
				r.wantTook(time.Since(began), c.least, c.most)
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, context.Canceled) != (c.interrupt > 0) || !slices.Equal(said, c.said) {
					t.Errorf("said %q, want %q; %v", said, c.said, err)
				}
				if c.interrupt > 0 && len(gone) > 0 {
					t.Errorf("gone: %v", gone)
				}
				if c.interrupt == 0 && r.there() != "" {
					t.Errorf("there is %s", r.there())
				}
			})
		})
	}
}
