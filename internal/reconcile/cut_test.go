package reconcile_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/fake"
)

// step is something that happens to a node.
type step func(h *cutHouse)

func wants(pods ...func() *v1.Pod) step {
	return func(h *cutHouse) {
		h.wanted = pods
		h.tell()
	}
}

func exits(id string, code int) step { return func(h *cutHouse) { h.rt.Exit(id, code) } }

// losesSandbox makes the pod's sandbox incomplete.
func losesSandbox(h *cutHouse) {
	for _, id := range h.rt.SandboxIDs() {
		h.rt.LoseSandbox(id)
	}
}

// history is the course of a pod, one step every ten seconds, with its expected result.
type history struct {
	images map[string]fake.Script
	deaf   string
	exec   func() fake.Command // hooks and probes
	steps  []step
	// took is how long it takes from the last step on.
	took time.Duration
	// hooked has had its hook run whole, once or, if podrun was killed at its end, twice.
	hooked string
	// living runs in the end; phase is the pod's, "" for one that is gone.
	living string
	phase  v1.PodPhase
	// anew says that the same instances are there twice, the second time in another life of the pod.
	anew bool
	// restarts are the pod's in the end, of all its containers.
	restarts int32
	// grace is what each instance has between its stop signal and KILL; 0: none is killed.
	grace time.Duration
}

// cutHouse is a podrun that is killed after some mutation and started again.
type cutHouse struct {
	*house
	t      *testing.T
	wanted []func() *v1.Pod
	ledger *ledger
	away   time.Duration
	lost   time.Duration // while podrun was away or about to be killed
	cuts   []int
	// When an instance was started, told and killed first.
	started, told, killed map[string]time.Time
	restarts              map[string]int32
	again                 []string
	mu                    sync.Mutex
	ran                   map[string]int // commands that came to their end, by instance
}

// clocked records when instances were started and signalled.
type clocked struct {
	runtime.Containers
	h *cutHouse
}

func (c clocked) StartContainer(ctx context.Context, s runtime.Start) error {
	id := fmt.Sprintf("%s-%s-%d", s.Pod.UID, s.Container.Name, s.Attempt)
	err := c.Containers.StartContainer(ctx, s)
	if err == nil {
		if _, was := c.h.started[id]; was {
			c.h.again = append(c.h.again, id)
		}
		c.h.started[id] = time.Now()
	}
	return err
}

func (c clocked) SignalContainer(ctx context.Context, id, signal string) error {
	err := c.Containers.SignalContainer(ctx, id, signal)
	first := c.h.told
	if signal != "" {
		first = c.h.killed
	}
	if _, was := first[id]; !was && err == nil {
		first[id] = time.Now()
	}
	return err
}

func (h *cutHouse) begin() {
	h.house = start(h.t, h.rt, func(o *reconcile.Options) { o.Containers, o.Disk = clocked{h.rt, h}, h.ledger })
}

func (h *cutHouse) tell() {
	var all []*v1.Pod
	for _, p := range h.wanted {
		all = append(all, p())
	}
	h.want(all...)
}

// tick is how often to check whether podrun was killed.
const tick = 500 * time.Millisecond

// pass lets time pass. It restarts a podrun that was killed, after some time without podrun.
func (h *cutHouse) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		after(tick)
		if len(h.cuts) > 0 && h.rt.Left() == 0 {
			h.stop()
			time.Sleep(h.away)
			h.lost += h.away + tick
			h.cuts = h.cuts[1:]
			h.rt.CutAfter(-1)
			if len(h.cuts) > 0 {
				h.rt.CutAfter(h.cuts[0])
			}
			h.begin()
			h.tell()
		}
		if h.rt.Left() != 0 {
			h.check()
		}
	}
}

// check verifies that nothing runs twice and that no restart count decreases.
func (h *cutHouse) check() {
	running := map[string]string{}
	for _, id := range strings.Fields(h.living()) {
		name := id[strings.Index(id, "-")+1 : strings.LastIndex(id, "-")]
		if other := running[name]; other != "" {
			h.t.Fatalf("%s runs beside %s", id, other)
		}
		running[name] = id
	}
	p := h.board.get("web")
	if p == nil {
		return
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		of := string(p.UID) + "-" + c.Name
		if c.RestartCount < h.restarts[of] {
			h.t.Errorf("restart count of %s goes from %d back to %d", of, h.restarts[of], c.RestartCount)
		}
		h.restarts[of] = c.RestartCount
	}
}

func (x history) run(t *testing.T, away time.Duration, cuts ...int) (done bool) {
	rt := runtimeWith(x.images)
	h := &cutHouse{house: &house{rt: rt}, t: t, away: away, cuts: cuts, ledger: &ledger{},
		started: map[string]time.Time{}, ran: map[string]int{}, told: map[string]time.Time{}, killed: map[string]time.Time{}, restarts: map[string]int32{}}
	if x.deaf != "" {
		rt.IgnoreTerm(x.deaf)
	}
	if x.exec != nil {
		run := x.exec()
		rt.OnExec(func(ctx context.Context, id string, cmd []string) (int, error) {
			code, err := run(ctx, id, cmd)
			if err == nil {
				h.mu.Lock()
				h.ran[id]++
				h.mu.Unlock()
			}
			return code, err
		})
	}
	if len(cuts) > 0 {
		rt.CutAfter(cuts[0])
	}
	h.begin()
	for _, s := range x.steps {
		s(h)
		h.pass(10 * time.Second)
	}
	h.pass(x.took + away*time.Duration(len(cuts)))
	done = len(h.cuts) > 0
	x.judge(h)
	h.stop()
	return done
}

// judge verifies the result of the history.
func (x history) judge(h *cutHouse) {
	h.wantLiving(x.living)
	p := h.board.get("web")
	switch {
	case x.phase == "":
		h.wantEmpty()
	case p == nil:
		h.t.Errorf("the pod is gone")
	case p.Status.Phase != x.phase:
		h.t.Errorf("%s (%s), want %s", p.Status.Phase, p.Status.Reason, x.phase)
	default:
		var restarts int32
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			restarts += c.RestartCount
		}
		if restarts != x.restarts {
			h.t.Errorf("%d restarts, want %d", restarts, x.restarts)
		}
	}
	if len(h.again) > 0 && !x.anew {
		h.t.Errorf("started again under their numbers: %s", h.again)
	}
	if n := h.ran[x.hooked]; x.hooked != "" && (n < 1 || n > 2) {
		h.t.Errorf("the hook of %s ran whole %d times", x.hooked, n)
	}
	for id, at := range h.killed {
		told, was := h.told[id]
		// One that was told again, or late, because podrun was killed as it told it has two seconds at least.
		least, most := max(x.grace-h.lost, min(x.grace, 2*time.Second)), x.grace+h.lost+2*time.Second
		switch {
		case !was && x.grace > 0:
			h.t.Errorf("%s was killed and never told", id)
		case was && (at.Sub(told) < least || at.Sub(told) > most):
			h.t.Errorf("%s was killed %s after it was told", id, at.Sub(told))
		}
	}
}

func histories() map[string]history {
	named := func(policy v1.RestartPolicy, uid pod.UID, containers ...string) func() *v1.Pod {
		return func() *v1.Pod {
			p := newPod("web", uid, policy, containers...)
			p.Spec.TerminationGracePeriodSeconds = new(int64(5))
			p.Spec.Containers[0].Args = []string{string(uid)}
			return p
		}
	}
	with := func(p func() *v1.Pod, change func(p *v1.Pod)) func() *v1.Pod {
		return func() *v1.Pod {
			out := p()
			change(out)
			return out
		}
	}
	first := func(change func(c *v1.Container)) func(p *v1.Pod) {
		return func(p *v1.Pod) { change(&p.Spec.Containers[0]) }
	}
	forever := map[string]fake.Script{"a:1": {}, "b:1": {}, "i:1": {Run: time.Second}, "s:1": {}}
	service, job := named(v1.RestartPolicyAlways, "u1", "a", "b"), named(v1.RestartPolicyNever, "u1", "a")
	retried := named(v1.RestartPolicyOnFailure, "u1", "a")
	limited := with(service, first(func(c *v1.Container) {
		c.Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("10")}
	}))
	deadline := func(p *v1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(15)) }
	whole := func(p *v1.Pod) { withInit(p, "i", "S") }
	sized := func(cpu string) func(*v1.Pod) {
		return first(func(c *v1.Container) {
			c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
			c.ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceCPU, RestartPolicy: v1.RestartContainer}}
		})
	}
	hooks := func(code int) func() fake.Command {
		return func() fake.Command { return commands(map[string]func() int{"hook": always(code)}) }
	}
	slow := func() fake.Command {
		return func(ctx context.Context, _ string, _ []string) (int, error) {
			select {
			case <-time.After(3 * time.Second):
				return 0, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
	}
	failing := func() fake.Command { // the first instance, after a while
		fails := from(5*time.Second, 0, 1)
		return func(_ context.Context, id string, _ []string) (int, error) {
			if id == "u1-a-0" {
				return fails(), nil
			}
			return 0, nil
		}
	}
	restartsAll := func(p *v1.Pod) {
		p.Spec.Containers[1].RestartPolicy = new(v1.ContainerRestartPolicyNever)
		p.Spec.Containers[1].RestartPolicyRules = []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{88}}}}
	}
	labelled := func(p *v1.Pod) { p.UID, p.Labels = "u2", map[string]string{"a": "b"} }
	soon := func(s step) step { return func(h *cutHouse) { s(h); h.pass(2 * time.Second) } }
	then := func(all ...step) step {
		return func(h *cutHouse) {
			for _, s := range all {
				s(h)
			}
		}
	}
	reboot := func(h *cutHouse) { h.rt.Reboot("boot-1") } // its id stays: what was lost was lost in this boot
	return map[string]history{
		"all restart": {images: forever, deaf: "a", steps: []step{wants(with(with(service, whole), restartsAll)), exits("u1-b-0", 88)}, took: 40 * time.Second,
			living: "u1-a-1 u1-b-1 u1-s-1", phase: v1.PodRunning, restarts: 4},
		"edit in place":     {images: forever, steps: []step{wants(service), wants(with(service, labelled))}, living: "u1-a-0 u1-b-0", phase: v1.PodRunning},
		"wanted again":      {images: forever, deaf: "a", steps: []step{wants(service), then(soon(wants()), wants(service))}, took: 30 * time.Second, living: "u1-a-0 u1-b-0", phase: v1.PodRunning, grace: 5 * time.Second, anew: true},
		"job wanted again":  {images: forever, deaf: "a", steps: []step{wants(job), then(soon(wants()), wants(job))}, took: 30 * time.Second, living: "u1-a-0", phase: v1.PodRunning, grace: 5 * time.Second, anew: true},
		"exits lost":        {images: forever, steps: []step{wants(service), reboot}, took: 40 * time.Second, living: "u1-a-1 u1-b-1", phase: v1.PodRunning, restarts: 2},
		"init fails":        {images: map[string]fake.Script{"a:1": {}, "s:1": {}, "i:1": {Run: time.Second, Exit: 1}}, steps: []step{wants(with(job, whole))}, took: 20 * time.Second, phase: v1.PodFailed},
		"init retried":      {images: map[string]fake.Script{"a:1": {}, "s:1": {}, "i:1": {}}, steps: []step{wants(with(retried, whole)), exits("u1-i-0", 1), exits("u1-i-1", 0), exits("u1-a-0", 0)}, took: 20 * time.Second, phase: v1.PodSucceeded, restarts: 1},
		"start":             {images: forever, steps: []step{wants(service)}, living: "u1-a-0 u1-b-0", phase: v1.PodRunning},
		"crash":             {images: forever, steps: []step{wants(service), exits("u1-a-0", 1)}, took: 20 * time.Second, living: "u1-a-1 u1-b-0", phase: v1.PodRunning, restarts: 1},
		"crash loop":        {images: map[string]fake.Script{"a:1": {Run: time.Second, Exit: 1}, "b:1": {}}, steps: []step{wants(service)}, took: 15 * time.Second, living: "u1-b-0", phase: v1.PodRunning, restarts: 2},
		"edit":              {images: forever, steps: []step{wants(service), wants(named(v1.RestartPolicyAlways, "u2", "a", "b"))}, took: 20 * time.Second, living: "u2-a-0 u2-b-0", phase: v1.PodRunning},
		"edit of a deaf":    {images: forever, deaf: "a", steps: []step{wants(service), wants(named(v1.RestartPolicyAlways, "u2", "a", "b"))}, took: 20 * time.Second, living: "u2-a-0 u2-b-0", phase: v1.PodRunning, grace: 5 * time.Second},
		"delete":            {images: forever, steps: []step{wants(service), wants()}, took: 10 * time.Second},
		"delete of a deaf":  {images: forever, deaf: "a", steps: []step{wants(service), wants()}, took: 20 * time.Second, grace: 5 * time.Second},
		"job":               {images: forever, steps: []step{wants(job), exits("u1-a-0", 0)}, took: 20 * time.Second, phase: v1.PodSucceeded},
		"failed job":        {images: forever, steps: []step{wants(job), exits("u1-a-0", 3)}, took: 20 * time.Second, phase: v1.PodFailed},
		"job retried":       {images: forever, steps: []step{wants(retried), exits("u1-a-0", 3), exits("u1-a-1", 0)}, took: 20 * time.Second, phase: v1.PodSucceeded, restarts: 1},
		"job with sidecars": {images: forever, steps: []step{wants(with(job, whole)), exits("u1-a-0", 0)}, took: 20 * time.Second, phase: v1.PodSucceeded},
		"delete without a grace period": {images: forever, deaf: "a", steps: []step{wants(with(service, func(p *v1.Pod) {
			p.Spec.TerminationGracePeriodSeconds = new(int64)
		})), wants()}, took: 20 * time.Second, grace: 2 * time.Second},
		"deaf sidecar":   {images: forever, deaf: "s", steps: []step{wants(with(job, whole)), exits("u1-a-0", 0)}, took: 20 * time.Second, phase: v1.PodSucceeded, grace: 5 * time.Second},
		"sidecars crash": {images: forever, steps: []step{wants(with(service, whole)), exits("u1-s-0", 1)}, took: 20 * time.Second, living: "u1-a-0 u1-b-0 u1-s-1", phase: v1.PodRunning, restarts: 1},
		"deadline":       {images: forever, deaf: "a", steps: []step{wants(with(service, deadline))}, took: 30 * time.Second, phase: v1.PodFailed, grace: 5 * time.Second},
		"sandbox lost": {images: forever, deaf: "a", steps: []step{wants(service), losesSandbox}, took: 40 * time.Second,
			living: "u1-a-1 u1-b-1", phase: v1.PodRunning, restarts: 2, grace: 5 * time.Second},
		"removed":     {images: forever, steps: []step{wants(service), func(h *cutHouse) { h.rt.Vanish("u1-a-0") }}, took: 40 * time.Second, living: "u1-a-1 u1-b-0", phase: v1.PodRunning, restarts: 1},
		"job removed": {images: forever, steps: []step{wants(job), exits("u1-a-0", 0), func(h *cutHouse) { h.rt.Vanish("u1-a-0") }}, took: 20 * time.Second, phase: v1.PodSucceeded},
		"liveness": {images: forever, deaf: "a", exec: failing, steps: []step{wants(with(retried, first(func(c *v1.Container) {
			c.LivenessProbe = execProbe("live")
			c.LivenessProbe.TerminationGracePeriodSeconds = new(int64(3))
		})))}, took: 5 * time.Second, living: "u1-a-1", phase: v1.PodRunning, restarts: 1, grace: 3 * time.Second},
		"hooks": {images: forever, exec: hooks(0), steps: []step{wants(with(service, first(func(c *v1.Container) {
			c.Lifecycle = &v1.Lifecycle{PostStart: execHook("hook"), PreStop: execHook("hook")}
		}))), wants()}, took: 20 * time.Second},
		"postStart": {images: forever, exec: slow, steps: []step{wants(with(service, first(func(c *v1.Container) {
			c.Lifecycle = &v1.Lifecycle{PostStart: execHook("hook")}
		})))}, took: 20 * time.Second, living: "u1-a-0 u1-b-0", phase: v1.PodRunning, hooked: "u1-a-0"},
		"hooks that hang": {images: forever, deaf: "a", exec: hooks(-1), steps: []step{wants(with(service, first(func(c *v1.Container) {
			c.Lifecycle = &v1.Lifecycle{PreStop: execHook("hook")}
		}))), wants()}, took: 20 * time.Second, grace: 2 * time.Second},
		"resize": {images: forever, deaf: "a", steps: []step{wants(with(service, sized("1"))), wants(with(service, sized("2")))}, took: 20 * time.Second,
			living: "u1-a-1 u1-b-0", phase: v1.PodRunning, restarts: 1, grace: 5 * time.Second},
		"eviction": {images: forever, deaf: "a", steps: []step{wants(limited), func(h *cutHouse) { h.ledger.set(11, nil) }}, took: 30 * time.Second, phase: v1.PodFailed, grace: 2 * time.Second},
	}
}

// cutStride is the distance between the mutations after which podrun is killed.
var cutStride = 1

// TestCutAfterEveryMutation kills podrun after each mutation of many histories, and a second time
// soon after. It restarts podrun each time, at once or some time later. It verifies that nothing
// runs twice at the same time or is run a second time, that no grace period is given twice or left
// out, that counts do not decrease, and that the result is the same.
func TestCutAfterEveryMutation(t *testing.T) {
	for name, x := range histories() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { x.run(t, 0) })
			for n, done := 1, false; !done && !t.Failed(); n += cutStride {
				for _, how := range []struct {
					away time.Duration
					cuts []int
				}{{3 * time.Second, []int{n, 1 + n%3}}, {0, []int{n}}} {
					synctest.Test(t, func(t *testing.T) {
						done = x.run(t, how.away, how.cuts...)
						if t.Failed() {
							t.Logf("cut after %v, away for %s", how.cuts, how.away)
						}
					})
				}
			}
		})
	}
}
