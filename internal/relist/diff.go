package relist

import (
	"fmt"
	"slices"

	"podrun.io/podrun/internal/pod"
)

// Kind is the kind of an Event.
type Kind int

// The kinds of events: those of the kubelet's pod lifecycle event generator, and those of podrun's
// own: Appeared for the first observation of a pod, Vanished when nothing of it is left, and
// SandboxDied for a sandbox that is not ready any more or was removed.
const (
	Appeared Kind = iota
	Started
	Died
	Removed
	SandboxDied
	Vanished
)

// String returns the kind's name in lower case, as it is in logs and metrics.
func (k Kind) String() string {
	return [...]string{"appeared", "started", "died", "removed", "sandbox-died", "vanished"}[k]
}

// Event is a change between two observations of a pod. It only names what changed; the observation
// itself is in the Relister.
type Event struct {
	Kind Kind
	Pod  pod.Key
	// Container is the name of the container, and ID the instance ID; for SandboxDied, ID is the
	// sandbox ID.
	Container, ID string
}

func (e Event) String() string {
	return fmt.Sprintf("%s %s %s%s", e.Pod, e.Kind, e.Container, e.ID)
}

// Diff returns the changes between two observations of the same pod. A container that disappeared
// while it ran has both died and been removed. A container that turns out never to have run, although it
// seemed to, has died too. An instance in state Unknown causes no event.
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

// same reports whether the containers have not changed, which is the most frequent case.
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
		case c.State == pod.Exited && was != pod.Exited, c.State == pod.Created && was == pod.Running:
			add(Died, c.Name, c.ID)
		}
	}
	for _, c := range old.Containers { // in a stable order, unlike the map's
		if _, vanished := before[c.ID]; !vanished {
			continue
		}
		if c.State == pod.Running || c.State == pod.Unknown {
			add(Died, c.Name, c.ID)
		}
		add(Removed, c.Name, c.ID)
	}
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
