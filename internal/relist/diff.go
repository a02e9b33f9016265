package relist

import (
	"fmt"

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
	before := map[string]pod.Container{}
	for _, c := range old.Containers {
		before[c.ID] = c
	}
	for _, c := range now.Containers {
		was := before[c.ID].State
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
	events = append(events, diffSandboxes(old, now)...)
	if !old.Empty() && now.Empty() {
		add(Vanished, "", "")
	}
	return events
}

func diffSandboxes(old, now pod.Observed) []Event {
	ready := map[string]bool{}
	for _, s := range now.Sandboxes {
		ready[s.ID] = s.Ready
	}
	var events []Event
	for _, s := range old.Sandboxes {
		if s.Ready && !ready[s.ID] {
			events = append(events, Event{Kind: SandboxDied, Pod: now.Key, ID: s.ID})
		}
	}
	return events
}
