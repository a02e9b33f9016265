package plan

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// now is the time at which the tests plan.
var now = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// boot is the boot id at that time.
const boot = "boot-1"

// wanted returns the pod default/web-node, UID u1, with the named containers.
func wanted(policy v1.RestartPolicy, names ...string) *v1.Pod {
	p := &v1.Pod{}
	p.Namespace, p.Name, p.UID = "default", "web-node", "u1"
	p.Spec.RestartPolicy = policy
	for _, n := range names {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: n, Image: "img:1"})
	}
	return p
}

// sandbox returns the sandbox s<attempt> of revision u1.
func sandbox(attempt int, ready bool) pod.Sandbox {
	return pod.Sandbox{ID: fmt.Sprintf("s%d", attempt), UID: "u1", Attempt: attempt, Ready: ready, CreatedAt: now.Add(time.Duration(attempt) * time.Second)}
}

// ctr returns the instance <name><attempt> of revision u1 in sandbox s0. It has a grace period of 30 s, was started a
// minute ago and, if it has exited, exited a second ago. The options change it.
func ctr(name string, attempt int, state pod.State, options ...func(*pod.Container)) pod.Container {
	c := pod.Container{ID: fmt.Sprintf("%s%d", name, attempt), Name: name, UID: "u1", SandboxID: "s0", Attempt: attempt, Boot: boot,
		State: state, StartedAt: now.Add(-time.Minute), Termination: pod.Termination{Grace: 30 * time.Second}}
	if state == pod.Exited {
		c.FinishedAt = now.Add(-time.Second)
	}
	for _, o := range options {
		o(&c)
	}
	return c
}

// Options of ctr.

// code sets the exit code.
func code(n int) func(*pod.Container) { return func(c *pod.Container) { c.ExitCode = n } }

// step sets the back-off step that the instance was started at.
func step(n int) func(*pod.Container) { return func(c *pod.Container) { c.Backoff = n } }

// reaped marks the exit as saved and the instance's resources as freed.
func reaped(c *pod.Container) { c.Reaped = true }

// ran sets that the instance ran for d and exited that long ago.
func ran(d, ago time.Duration) func(*pod.Container) {
	return func(c *pod.Container) { c.FinishedAt, c.StartedAt = now.Add(-ago), now.Add(-ago-d) }
}

// remembered is an instance as the checkpoint has it.
type remembered pod.Container

// observed returns the observation of the given sandboxes, containers, remembered containers and revisions (UIDs).
func observed(things ...any) pod.Observed {
	o := pod.Observed{Key: pod.Key{Namespace: "default", Name: "web-node"}}
	for _, t := range things {
		switch t := t.(type) {
		case remembered:
			o.Remembered = append(o.Remembered, pod.Container(t))
		case pod.Container:
			o.Containers = append(o.Containers, t)
		case pod.Sandbox:
			o.Sandboxes = append(o.Sandboxes, t)
		case pod.UID:
			o.Data = append(o.Data, t)
		}
	}
	o.Sort()
	return o
}
