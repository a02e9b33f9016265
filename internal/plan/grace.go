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
	// killGrace is the shortest time between an instance's stop signal and SIGKILL, however long its preStop hook or,
	// for a sidecar, the other containers took: the kubelet's minimumGracePeriodInSeconds (pkg/kubelet/kuberuntime).
	killGrace = 2 * time.Second
	// evictionGrace is the grace period of a pod that exceeds its storage limits: the kubelet's
	// immediateEvictionGracePeriodSeconds (pkg/kubelet/eviction), which applies to all evictions by such limits.
	evictionGrace = time.Second
)

// GraceLimits are the upper limits of all grace periods of a pod. They may become lower while instances end.
type GraceLimits struct {
	// Override is the longest grace period that the user allows; nil means no limit, 0 means that
	// everything is killed at once.
	Override *time.Duration
	// AtOnce reports that the user does not wait any longer: everything is killed at once.
	AtOnce bool
	// Shutdown is the longest grace period that a shutdown of the machine allows. It also means
	// that the pod is terminated, that nothing of it is started, and that no sandbox, container or
	// data is removed. nil means that the pod is not affected by a shutdown.
	Shutdown *time.Duration
	// Published reports, during a shutdown, that CSI drivers have mounted volumes of the pod, which they unmount then.
	Published bool
}

// limit returns period or, if that is shorter, the lowest of the limits.
func (l GraceLimits) limit(period time.Duration) time.Duration {
	for _, most := range []*time.Duration{l.Override, l.Shutdown} {
		if most != nil {
			period = min(period, *most)
		}
	}
	return period
}

// atOnce reports whether everything is killed without a grace period, which only a user or a shutdown can request.
func (l GraceLimits) atOnce() bool { return l.AtOnce || l.limit(1) <= 0 }

// Termination is what the grace period of one instance is decided from.
type Termination struct {
	// Period is the pod's terminationGracePeriodSeconds that the instance was started with.
	Period time.Duration
	// Probe is the terminationGracePeriodSeconds of the probe whose failure terminates the
	// instance; nil if there is none. It takes the place of Period.
	Probe *time.Duration
	// Limits are the limits of the pod's grace periods.
	Limits GraceLimits
	// WholePod reports that the whole revision is terminated: because the manifest has been
	// removed or edited, the deadline has passed, the pod has completed, the machine shuts down,
	// or the pod is evicted. Evicted reports the last of these.
	WholePod, Evicted bool
	// Began is when the termination of the pod began, if the instance is a sidecar that ran on for
	// other containers: that time is part of its grace period. Else it is zero.
	Began time.Time
	// Signals are the steps of the termination so far, at the time Now.
	Signals pod.Signals
	Now     time.Time
}

// Grace returns what is left of an instance's grace period: for its preStop hook, and until it is
// killed. Results of 0 and less mean that nothing is left. The two differ because an instance has at
// least killGrace after its stop signal, unless everything is killed at once.
func Grace(t Termination) (hook, kill time.Duration) {
	if t.Limits.atOnce() {
		return 0, 0
	}
	period := t.Period
	if t.Probe != nil {
		period = *t.Probe
	}
	period = t.Limits.limit(period)
	if t.Evicted {
		period = min(period, evictionGrace)
	}
	if t.WholePod {
		period = max(period, podGrace)
	}
	if !t.Began.IsZero() {
		asked := t.Signals.Asked
		if asked.IsZero() {
			asked = t.Now
		}
		period = max(period-asked.Sub(t.Began), killGrace)
	}
	hook = left(period, t.Signals.Asked, t.Now)
	return hook, max(hook, left(killGrace, t.Signals.Signalled, t.Now))
}

// left returns what is left now of a period that began at began; all of it if began is zero. The
// result is at most the period, so that a clock that was set back does not extend it.
func left(period time.Duration, began, now time.Time) time.Duration {
	if began.IsZero() {
		return period
	}
	return min(period, period-now.Sub(began))
}
