package relist

import (
	"fmt"
	"slices"

	"podrun.io/podrun/internal/pod"
)

// Kind is what an Event says.
type Kind int

// The kinds of events, as the kubelet's generator has them, and two of podrun's own: Appeared for the
// first sight of a pod, SandboxDied for a sandbox that is no longer whole or there.
const (
	Appeared Kind = iota
	Started
	Died
	Removed
	SandboxDied
	Vanished
)

func (k Kind) String() string {
	return [...]string{"appeared", "started", "died", "removed", "sandbox-died", "vanished"}[k]
}

// Event is a change between two sights of a pod. It names what changed; the truth is in the record.
type Event struct {
	Kind Kind
	Pod  pod.Key
	// Container and ID are of the instance, or ID of the sandbox.
	Container, ID string
}

func (e Event) String() string {
	return fmt.Sprintf("%s %s %s%s", e.Pod, e.Kind, e.Container, e.ID)
}

// Diff returns what happened between two sights of the same pod. A container that vanished while it ran
// has both died and been removed. Instances whose state could not be told make no event.
func Diff(old, now pod.Observed) []Event {
	var events []Event
	key := now.Key
	add := func(k Kind, container, id string) {
		events = append(events, Event{Kind: k, Pod: key, Container: container, ID: id})
	}
	if old.Empty() && !now.Empty() {
		add(Appeared, "", "")
	}
	if !same(old.Containers, now.Containers) {
		diffContainers(old, now, add)
	}
	events = append(events, diffSandboxes(old, now)...)
	if !old.Empty() && now.Empty() {
		add(Vanished, "", "")
	}
	return events
}

// same reports that nothing has happened to the containers, which is what most looks find.
func same(old, now []pod.Container) bool {
	return slices.EqualFunc(old, now, func(a, b pod.Container) bool { return a.ID == b.ID && a.State == b.State })
}

func diffContainers(old, now pod.Observed, add func(k Kind, container, id string)) {
	before := map[string]pod.State{}
	for _, c := range old.Containers {
		before[c.ID] = c.State
	}
	for _, c := range now.Containers {
		was := before[c.ID]
		delete(before, c.ID)
		switch {
		case c.State == pod.Running && was != pod.Running:
			add(Started, c.Name, c.ID)
		case c.State == pod.Exited && was != pod.Exited:
			add(Died, c.Name, c.ID)
		}
	}
	for _, c := range old.Containers { // in order, not the map's
		if _, vanished := before[c.ID]; !vanished {
			continue
		}
		if c.State == pod.Running || c.State == pod.Unknown {
			add(Died, c.Name, c.ID)
		}
		add(Removed, c.Name, c.ID)
	}
}

// gone are the last sandboxes of those revisions of which something is left, but no sandbox.
func gone(old, now pod.Observed) (last []pod.Sandbox) {
	for _, had := range [][]pod.Sandbox{old.Sandboxes, old.Gone} { // the newest first
		for _, s := range had {
			known := func(other pod.Sandbox) bool { return other.UID == s.UID }
			if slices.ContainsFunc(now.Sandboxes, known) || slices.ContainsFunc(last, known) {
				continue
			}
			if slices.Contains(now.Data, s.UID) || slices.ContainsFunc(now.Containers, func(c pod.Container) bool { return c.UID == s.UID }) {
				last = append(last, s)
			}
		}
	}
	return last
}

func diffSandboxes(old, now pod.Observed) []Event {
	var events []Event
	for _, s := range old.Sandboxes {
		whole := slices.ContainsFunc(now.Sandboxes, func(n pod.Sandbox) bool { return n.ID == s.ID && n.Ready })
		if s.Ready && !whole {
			events = append(events, Event{Kind: SandboxDied, Pod: now.Key, ID: s.ID})
		}
	}
	return events
}
