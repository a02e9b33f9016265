// Package rollouts decides how the pods of a workload are replaced by those of another template while enough of them
// serve: one decision of a Deployment's rolling update. It is pure, and remembers nothing: what it decides from is
// which pods there are.
//
// Begin reading at Decide.
package rollouts

import (
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Strategy bounds the number of pods during a rolling update.
type Strategy struct {
	// Surge is how many pods there may be beyond the replicas, and Unavailable how many of the replicas may be
	// unavailable. At least one of them is not 0.
	Surge, Unavailable int
	// MinReady is for how long a pod must be ready to be available.
	MinReady time.Duration
}

// Scaled returns the strategy for a number of replicas, rounded as Kubernetes rounds: percentages of the surge up, of
// the unavailable ones down, and one unavailable pod if both are 0.
//
// Source: https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#max-unavailable
func Scaled(surge, unavailable *intstr.IntOrString, replicas int, minReady time.Duration) Strategy {
	scale := func(v *intstr.IntOrString, up bool) int {
		if v == nil {
			return 0
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(v, replicas, up)
		if err != nil {
			return 0
		}
		return max(n, 0)
	}
	s := Strategy{Surge: scale(surge, true), Unavailable: scale(unavailable, false), MinReady: minReady}
	if s.Surge == 0 && s.Unavailable == 0 {
		s.Unavailable = 1
	}
	return s
}

// State is what there is of a pod.
type State int

// The states of a pod.
const (
	// Absent means that there is none.
	Absent State = iota
	// Former means that it is of another template, and needs new containers.
	Former
	// Updated means that it is of the template that is wanted.
	Updated
)

// Pod is one of the pods that a workload has, or may have.
type Pod struct {
	State State
	// Available reports that it has been ready for long enough. Unknown reports that one that is not available may
	// serve nevertheless.
	Available, Unknown bool
}

// Choice is what becomes of a pod.
type Choice int

// The choices.
const (
	// Remove means that there should be none.
	Remove Choice = iota
	// Keep means that it stays what it is.
	Keep
	// Update means that it should be of the template that is wanted.
	Update
)

// Decide returns the choices for the replicas, and for the pods beyond them. Of these there are as many as the strategy
// allows, and those that are left of a former decision.
//
// A former pod that is not available is replaced at once: it does not serve. One that is available is replaced only if
// enough others are. It stays replaced: the caller says Updated from then on. An updated pod beyond the replicas stays
// until all of these are available, also if a probe fails for a moment: under load it may be the only one that serves.
func Decide(replicas, beyond []Pod, s Strategy) (chosen, extra []Choice) {
	d := decision{least: len(replicas) - s.Unavailable}
	former, complete := 0, true
	for _, p := range replicas {
		d.count(p)
		if p.State == Former {
			former++
		}
		complete = complete && p.State == Updated && p.Available
	}
	for _, p := range beyond {
		d.count(p)
	}
	for _, p := range replicas {
		if p.State == Former && !d.gives(p) {
			chosen = append(chosen, Keep)
			continue
		}
		chosen = append(chosen, Update)
	}
	needed := min(s.Surge, former)
	for _, p := range beyond {
		if p.State != Absent {
			needed-- // it is one of them, or is one pod too many already
		}
	}
	for i, p := range beyond {
		choice := Remove
		switch {
		case p.State == Absent && needed > 0:
			choice = Update
			needed--
		case p.State == Updated && (former > 0 || !complete && i < s.Surge):
			choice = Keep
		case p.State == Former && former > 0 && d.gives(p):
			choice = Update
		case p.State == Former && former > 0, p.State != Absent && !complete && !d.gives(p):
			choice = Keep
		}
		extra = append(extra, choice)
	}
	return chosen, extra
}

// decision counts the pods that are available.
type decision struct{ available, least int }

func (d *decision) count(p Pod) {
	if p.State != Absent && p.Available {
		d.available++
	}
}

// gives reports that a pod may go, and counts it no more then.
func (d *decision) gives(p Pod) bool {
	switch {
	case p.Unknown && !p.Available:
		return d.available >= d.least
	case !p.Available:
		return true
	case d.available-1 < d.least:
		return false
	}
	d.available--
	return true
}
