package result

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// period is since when a pod is in a state, without a restart of a container.
type period struct {
	run   string // identifies the instances
	since time.Time
}

// follow records whether a pod is in the state of these periods. A restart begins a new period.
func follow(periods map[pod.Key]period, p *v1.Pod, is bool) {
	key, run := pod.KeyOf(p), runOf(p)
	switch {
	case !is:
		delete(periods, key)
	case periods[key].run != run:
		periods[key] = period{run, time.Now()}
	}
}

// runOf identifies the instances of a pod.
func runOf(p *v1.Pod) string {
	var b strings.Builder
	fmt.Fprint(&b, p.UID)
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		fmt.Fprintf(&b, " %s %s %d", s.Name, s.ContainerID, s.RestartCount)
	}
	return b.String()
}

// runsAs reports whether all containers that run according to the status of p do so.
func runsAs(p *v1.Pod, seen pod.Observed) bool {
	running := map[string]bool{}
	for _, c := range seen.Containers {
		running[c.ID] = c.State == pod.Running
	}
	return !slices.ContainsFunc(statuses(p), func(s v1.ContainerStatus) bool {
		return s.State.Running != nil && !running[pod.IDOf(s.ContainerID)]
	})
}

// runTimes returns how long the last instances of the containers of p have run, by name, of those that have run.
// The times are what was observed: a status has only whole seconds.
func runTimes(p *v1.Pod, seen pod.Observed, until time.Time) map[string]time.Duration {
	instances, times := map[string]pod.Container{}, map[string]time.Duration{}
	for _, c := range seen.Containers {
		instances[c.ID] = c
	}
	for _, s := range statuses(p) {
		t := s.State.Terminated
		if t == nil && s.State.Waiting != nil {
			t = s.LastTerminationState.Terminated
		}
		id := s.ContainerID
		if t != nil && t.ContainerID != "" {
			id = t.ContainerID
		}
		var from, to time.Time
		switch c, known := instances[pod.IDOf(id)]; {
		case known && !c.FinishedAt.IsZero():
			from, to = c.StartedAt, c.FinishedAt
		case known && s.State.Running != nil:
			from, to = c.StartedAt, until
		case t != nil:
			from, to = t.StartedAt.Time, t.FinishedAt.Time
		default:
			continue
		}
		times[s.Name] = max(0, to.Sub(from))
	}
	return times
}
