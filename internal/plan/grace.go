package plan

import (
	"time"

	"podrun.io/podrun/internal/pod"
)

const (
	// podGrace is the shortest grace period of a pod that is terminated, whatever its manifest or
	// an eviction says: the kubelet's calculateEffectiveGracePeriod (pkg/kubelet/pod_workers.go)
	// gives 1 s "no matter what". A preStop hook may use all of it.
	podGrace = time.Second
	// leastGrace is the shortest time between an instance's stop signal and SIGKILL, however long
	// its preStop hook or, for a sidecar, the other containers took: the kubelet's
	// minimumGracePeriodInSeconds (pkg/kubelet/kuberuntime).
	leastGrace = 2 * time.Second
	// evictionGrace is the grace period of a pod that exceeds its storage limits: the kubelet's
	// immediateEvictionGracePeriodSeconds (pkg/kubelet/eviction), which applies to all evictions by
	// such limits.
	evictionGrace = time.Second
)

// Ending is why an instance is terminated, as far as its grace period depends on it.
type Ending struct {
	// Pod: the whole pod is terminated, not this instance alone.
	Pod bool
	// Evicted: the pod exceeds its storage limits.
	Evicted bool
	// Probe is the grace period that the failed probe has of its own; nil if it has none, or if no
	// probe failed.
	Probe *time.Duration
	// Most is the upper limit that a user or the shutdown of the machine sets; nil if there is none.
	Most *time.Duration
}

// Grace returns the grace period of an instance: how long after the request to exit it is killed. It
// is the one of its manifest when it was started, or the probe's, within the limits that the ending
// sets. The time that its preStop hook takes counts against it, but the process has at least
// leastGrace after the stop signal unless everything is killed at once.
func Grace(c pod.Container, e Ending) time.Duration {
	grace := c.Grace
	if e.Probe != nil {
		grace = *e.Probe
	}
	if e.Evicted {
		grace = min(grace, evictionGrace)
	}
	if e.Most != nil {
		grace = min(grace, *e.Most)
	}
	if e.Pod {
		grace = max(grace, podGrace)
	}
	return grace
}

// graceOf returns the grace period of an instance that is terminated alone.
func (in reading) graceOf(c pod.Container, failed *pod.Failed) time.Duration {
	e := Ending{Most: in.MaxGrace}
	if failed != nil {
		e.Probe = failed.Grace
	}
	return Grace(c, e)
}

// graceInPod returns the grace period of an instance that is terminated with its pod.
func (in reading) graceInPod(c pod.Container) time.Duration {
	evicted := in.Evicted != "" && in.Pod != nil && c.UID == in.Pod.UID
	return Grace(c, Ending{Pod: true, Evicted: evicted, Most: in.MaxGrace})
}
