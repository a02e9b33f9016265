package reconcile_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/runtime/fake"
)

// churn is a day of changes on a node.
type churn struct {
	*house
	t      *testing.T
	random *rand.Rand
	logs   *shelf
	pods   map[string]*v1.Pod
	boots  int
	edits  int
}

func (c *churn) option(o *reconcile.Options) {
	o.Logs, o.Boot = c.logs, fmt.Sprintf("boot-%d", c.boots)
}

// podOf returns the n-th pod in a new revision: some run for ever, some crash, some are jobs.
func (c *churn) podOf(n int) *v1.Pod {
	c.edits++
	name, uid := fmt.Sprintf("p%d", n), pod.UID(fmt.Sprintf("u%d", c.edits))
	policy, containers := v1.RestartPolicyAlways, []string{"a"}
	switch n % 4 {
	case 0:
		containers = []string{"a", "b"}
	case 1:
		containers = []string{"crashes"}
	case 2:
		policy, containers = v1.RestartPolicyOnFailure, []string{"job"}
	}
	p := newPod(name, uid, policy, containers...)
	p.Spec.Containers[0].Args = []string{string(uid)}
	return p
}

// step executes one of the changes.
func (c *churn) step() {
	n := c.random.IntN(12)
	name := fmt.Sprintf("p%d", n)
	running := c.running()
	switch c.random.IntN(12) {
	case 0, 1, 2: // a manifest comes or is edited
		c.pods[name] = c.podOf(n)
		c.want(slices.Collect(maps.Values(c.pods))...)
	case 3: // a manifest goes
		delete(c.pods, name)
		c.want(slices.Collect(maps.Values(c.pods))...)
	case 4, 5, 6, 7: // a process dies
		if len(running) > 0 {
			c.rt.Exit(running[c.random.IntN(len(running))].ID, c.random.IntN(3))
		}
	case 8: // somebody removes a container
		if len(running) > 0 {
			c.rt.Vanish(running[c.random.IntN(len(running))].ID)
		}
	case 9: // the event stream breaks
		c.rt.BreakStream()
	case 10: // podrun is away for a while
		c.stop()
		after(time.Duration(c.random.IntN(120)) * time.Second)
		c.begin()
	case 11: // and now and then the machine
		if c.random.IntN(8) == 0 {
			c.stop()
			c.boots++
			c.rt.Reboot(fmt.Sprintf("boot-%d", c.boots))
			c.begin()
		}
	}
}

func (c *churn) begin() {
	c.house = start(c.t, c.rt, c.option)
	c.want(slices.Collect(maps.Values(c.pods))...)
}

func (c *churn) running() (out []pod.Container) {
	all, err := c.rt.List(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, o := range all {
		for _, i := range o.Containers {
			if i.State == pod.Running {
				out = append(out, i)
			}
		}
	}
	return out
}

// check verifies that nothing has piled up, and that everything that should run does.
func (c *churn) check(at time.Duration) {
	all, err := c.rt.List(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	if len(all) != len(c.pods) {
		c.t.Fatalf("after %v there are %d pods of %d", at, len(all), len(c.pods))
	}
	for _, o := range all {
		p := c.pods[o.Key.Name]
		if p == nil || len(o.Sandboxes) > 1 || len(o.Data) != 1 || o.Data[0] != p.UID || len(o.Containers) > 2*len(p.Spec.Containers) {
			c.t.Fatalf("after %v: %+v", at, o)
		}
		alive := 0
		for _, i := range o.Containers {
			if i.State == pod.Running {
				alive++
			}
		}
		if name := p.Spec.Containers[0].Name; (name == "a") && alive != len(p.Spec.Containers) {
			c.t.Fatalf("after %v, of %s run %d: %+v", at, o.Key, alive, o.Containers)
		}
	}
	kept := map[string]int{}
	for _, i := range c.logs.all() {
		if p := c.pods[i.Key.Name]; p == nil || p.UID != i.UID {
			c.t.Fatalf("after %v there is a log of %+v", at, i)
		}
		kept[string(i.UID)+i.Container]++
	}
	for of, n := range kept {
		if n > 8 { // one dead and one that runs; those that somebody removed go with the next that dies
			c.t.Fatalf("after %v there are %d logs of %s", at, n, of)
		}
	}
}

func (s *shelf) all() []pod.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.logs)
}

// TestADayOfChurn: over a day of edits, crashes, restarts and reboots nothing piles up, everything
// that should run does, and in the end nothing is left.
func TestADayOfChurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtimeWith(map[string]fake.Script{"a:1": {}, "b:1": {}, "crashes:1": {Run: 10 * time.Second, Exit: 1}, "job:1": {Run: time.Minute}})
		c := &churn{t: t, random: rand.New(rand.NewPCG(24, 7)), logs: &shelf{}, pods: map[string]*v1.Pod{}}
		c.house = &house{t: t, rt: rt}
		c.boots = 1
		c.begin()
		begin := time.Now()
		for time.Since(begin) < 24*time.Hour {
			for range 30 {
				c.step()
				after(time.Duration(c.random.IntN(90)) * time.Second)
			}
			after(6 * time.Minute) // longer than any back-off
			c.check(time.Since(begin))
		}
		c.want()
		after(time.Minute)
		c.wantEmpty()
		if left := c.logs.all(); len(left) > 0 {
			t.Errorf("logs left: %v", left)
		}
		c.board.mu.Lock()
		if len(c.board.pods) > 0 {
			t.Errorf("statuses left: %v", c.board.pods)
		}
		c.board.mu.Unlock()
		c.stop()
	})
}
