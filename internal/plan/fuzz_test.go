package plan

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// FuzzCompute judges random situations: the same input gives the same plan, a healthy container of the
// wanted revision is never stopped, nothing living is removed, nothing is killed that has not had its time, and doing
// what the plans say comes to an end.
func FuzzCompute(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		in := situation(rand.New(rand.NewPCG(seed, 2)))
		for step := 0; ; step++ {
			p := Compute(in)
			if a, b := planText(p, in.Pod), planText(Compute(in), in.Pod); a != b {
				t.Fatalf("two plans for one input:\n%s\n--\n%s", a, b)
			}
			checkHarmless(t, in, p)
			if len(p.Actions) == 0 && p.Wake == 0 {
				break
			}
			if step > 200 {
				t.Fatalf("no end; last plan:\n%s\nof %+v", planText(p, in.Pod), in)
			}
			apply(&in, p)
		}
	})
}

func situation(dice *rand.Rand) Input {
	in := Input{Now: now, Boot: boot, Earlier: dice.IntN(4) == 0, Replaced: dice.IntN(8) == 0,
		Images: map[string]Image{}, Signalled: map[string]pod.Signals{}, Failures: map[string]Failure{}, Probed: map[string]pod.Probed{}}
	policies := []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}
	if dice.IntN(5) > 0 {
		in.Pod = wanted(policies[dice.IntN(3)], []string{"a", "b"}[:1+dice.IntN(2)]...)
		withInit(in.Pod, []string{"i", "S", "T"}[:dice.IntN(4)]...)
	}
	if in.Pod != nil && dice.IntN(3) == 0 {
		in.Pod.Spec.ActiveDeadlineSeconds, in.Since = new(int64(30+dice.IntN(60))), now.Add(-time.Minute)
	}
	if in.Pod != nil && dice.IntN(3) == 0 {
		allRestartOn(&in.Pod.Spec.Containers[0], 1)
	}
	for i := range dice.IntN(3) {
		s := sandbox(i, dice.IntN(2) == 0)
		s.UID = pod.UID(fmt.Sprint("u", dice.IntN(2)))
		in.Observed.Sandboxes = append(in.Observed.Sandboxes, s)
	}
	for i := range dice.IntN(6) {
		n := dice.IntN(5)
		c := ctr([]string{"a", "b", "i", "s", "t"}[n], i, pod.State(1+dice.IntN(3)), code(dice.IntN(2)), step(dice.IntN(9)))
		if n > 2 {
			c.Sidecar = n - 1
		}
		c.RestartGeneration = dice.IntN(2) * dice.IntN(3)
		c.PreStop = dice.IntN(4) == 0
		c.UID = pod.UID(fmt.Sprint("u", dice.IntN(2)))
		c.SandboxID = fmt.Sprint("s", dice.IntN(3))
		if dice.IntN(4) == 0 {
			c.Boot = "boot-0"
		}
		c.Reaped = c.State == pod.Exited && dice.IntN(2) == 0
		in.Observed.Containers = append(in.Observed.Containers, c)
		if dice.IntN(4) == 0 {
			in.Probed[c.ID] = pod.Probed{Failed: &pod.Failed{Why: "failed liveness probe"}}
		}
		if dice.IntN(4) == 0 {
			in.Signalled[c.ID] = pod.Signals{Asked: now.Add(-20 * time.Second), Signalled: now, Alone: dice.IntN(2) == 0}
		}
	}
	for i := range dice.IntN(3) {
		in.Observed.Data = append(in.Observed.Data, pod.UID(fmt.Sprint("u", i)))
	}
	for _, uid := range in.Observed.Data {
		for i := range dice.IntN(3) {
			c := ctr([]string{"a", "i"}[i], dice.IntN(6), pod.State(2+dice.IntN(2)), code(dice.IntN(2)))
			c.UID = uid
			if dice.IntN(4) == 0 {
				c.Boot = "boot-0"
			}
			in.Observed.Remembered = append(in.Observed.Remembered, c)
		}
	}
	for i := range in.Observed.Containers {
		in.Observed.Containers[i].Grace = []time.Duration{0, time.Second, 30 * time.Second}[dice.IntN(3)]
	}
	if most := dice.IntN(8); most < 4 {
		in.Limits.Override = new([]time.Duration{0, time.Second / 2, time.Second, 5 * time.Second}[most])
	}
	if in.Pod != nil && dice.IntN(5) == 0 {
		in.Evicted = "full"
	}
	if in.Pod != nil && dice.IntN(5) == 0 {
		in.Refused = "privileged"
	}
	in.Interrupted = in.Pod != nil && dice.IntN(5) == 0
	in.Observed.Sort()
	return in
}

// withInit gives p init containers; a name in capitals makes a sidecar.
func withInit(p *v1.Pod, names ...string) {
	for _, n := range names {
		c := v1.Container{Name: strings.ToLower(n), Image: "img:1"}
		if n != c.Name {
			c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
}

// allRestartOn gives c a rule that restarts all containers when c exits with code.
func allRestartOn(c *v1.Container, code int32) {
	if c.RestartPolicy == nil {
		c.RestartPolicy = new(v1.ContainerRestartPolicyNever)
	}
	c.RestartPolicyRules = []v1.ContainerRestartRule{{
		Action:    v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{code}},
	}}
}

func checkHarmless(t *testing.T, in Input, p Plan) {
	byID := map[string]pod.Container{}
	for _, c := range in.Observed.Containers {
		byID[c.ID] = c
	}
	for _, a := range p.Actions {
		var id string
		switch a := a.(type) {
		case RunPreStop:
			id = a.ID
		case Terminate:
			id = a.ID
		case Kill:
			id = a.ID
			s, all := in.Signalled[id], in.Pod != nil && newRevision(in).stale(byID[id])
			atOnce := in.Limits.atOnce() || all || !s.Killed.IsZero()
			if !atOnce && (s.Signalled.IsZero() || in.Now.Sub(s.Signalled) < killGrace) {
				t.Fatalf("%s: it has not had its time: %+v", a, s)
			}
		case CreateSandbox:
			if in.Refused != "" {
				t.Fatalf("%s: the pod is refused", a)
			}
			continue
		case RemoveContainer:
			if byID[a.ID].State == pod.Running {
				t.Fatalf("%s: it runs", a)
			}
			continue
		default:
			continue
		}
		mine, _ := in.Observed.Split("u1")
		c := byID[id]
		over := false
		if in.Pod != nil { // what lives on after all has ended is a sidecar, or one instance too many
			r := newRevision(in)
			_, over = r.over()
			over = over || r.stale(c)
		}
		healthy := !over && in.Probed[c.ID].Failed == nil && in.Signalled[c.ID] == (pod.Signals{}) && in.Pod != nil && !in.Replaced && c.UID == in.Pod.UID && len(mine.Sandboxes) > 0 && mine.Sandboxes[0].Ready && c.SandboxID == mine.Sandboxes[0].ID
		if healthy {
			t.Fatalf("%s: it is healthy and wanted", a)
		}
	}
}

// apply is a world in which everything succeeds at once, no process ends by itself and each second one heeds no signal.
func apply(in *Input, p Plan) {
	if !p.Again {
		in.Earlier, in.Replaced = false, false
	}
	o := &in.Observed
	for _, a := range p.Actions {
		switch a := a.(type) {
		case CreateSandbox:
			o.Sandboxes = append([]pod.Sandbox{{ID: fmt.Sprint("new", a.Attempt), UID: in.Pod.UID, Attempt: a.Attempt, Ready: true, CreatedAt: in.Now}}, o.Sandboxes...)
			o.Data = append(o.Data, in.Pod.UID)
		case EnsureImage:
			in.Images[a.Container] = Image{Ready: true}
		case StartContainer:
			last, _, found := o.Last(in.Pod.UID, a.Container)
			cutOff := found && last.State == pod.Created && last.Attempt == a.Attempt
			if found && last.Attempt >= a.Attempt && !cutOff {
				panic(fmt.Sprintf("%s: attempt %d was used", a, last.Attempt))
			}
			if cutOff { // the same instance again takes its place
				o.Containers = without(o.Containers, func(c pod.Container) bool { return c.ID == last.ID })
			}
			mine, _ := o.Split(in.Pod.UID)
			c := ctr(a.Container, a.Attempt, pod.Running, step(a.Backoff))
			c.Sidecar, c.RestartGeneration = pod.SidecarOrder(in.Pod, a.Container), a.RestartGeneration
			if in.Pod.Spec.InitContainers != nil && c.Sidecar == 0 && isInit(in.Pod, c.Name) {
				c.State, c.FinishedAt = pod.Exited, in.Now // an init container succeeds at once
			}
			c.ID, c.SandboxID, c.StartedAt = fmt.Sprint(c.ID, "-", in.Now.UnixNano()), mine.Sandboxes[0].ID, in.Now
			o.Containers = append(o.Containers, c)
		case RunPreStop:
			in.Signalled[a.ID] = pod.Signals{Asked: in.Now, Alone: !a.Yields, Hooked: in.Now}
		case RenewGrace:
			s := in.Signalled[a.ID]
			s.Asked, s.Alone = in.Now, false
			in.Signalled[a.ID] = s
		case Terminate:
			if c := find(*o, a.ID); c.Attempt%2 == 0 {
				end(o, a, in.Now)
				break
			} // else it is deaf
			s := in.Signalled[a.ID]
			if s.Signalled = in.Now; s.Asked.IsZero() {
				s.Asked, s.Alone = in.Now, !a.Yields
			}
			in.Signalled[a.ID] = s
		case Kill:
			end(o, a, in.Now)
		case Reap:
			for i := range o.Containers {
				o.Containers[i].Reaped = o.Containers[i].Reaped || o.Containers[i].ID == a.ID
			}
		case RemoveContainer:
			o.Containers = without(o.Containers, func(c pod.Container) bool { return c.ID == a.ID })
		case RemoveSandbox:
			o.Sandboxes = without(o.Sandboxes, func(s pod.Sandbox) bool { return s.ID == a.ID })
		case RemoveData:
			o.Data = without(o.Data, func(u pod.UID) bool { return u == a.UID })
			o.Remembered = without(o.Remembered, func(c pod.Container) bool { return c.UID == a.UID })
		}
	}
	in.Now = in.Now.Add(max(p.Wake, time.Millisecond))
	o.Sort()
}

func find(o pod.Observed, id string) pod.Container {
	for _, c := range o.Containers {
		if c.ID == id {
			return c
		}
	}
	return pod.Container{}
}

func end(o *pod.Observed, a Action, at time.Time) {
	id := ""
	switch a := a.(type) {
	case Terminate:
		id = a.ID
	case Kill:
		id = a.ID
	}
	for i := range o.Containers {
		if c := &o.Containers[i]; c.ID == id {
			c.State, c.ExitCode, c.FinishedAt = pod.Exited, 143, at
		}
	}
}

func without[T any](all []T, drop func(T) bool) []T {
	var kept []T
	for _, t := range all {
		if !drop(t) {
			kept = append(kept, t)
		}
	}
	return kept
}
