package probe

import (
	"strings"
	"time"

	"podrun.io/podrun/internal/pod"
)

// Probed is one run of a probe.
type Probed struct {
	Pod       pod.Key
	UID       pod.UID
	Container string
	// Type is Liveness, Readiness or Startup. Result is successful, failed or unknown: the probe could
	// not be run.
	Type, Result string
	Duration     time.Duration
}

// Observer receives measurements. Its methods must not block.
type Observer interface {
	// Probed is called after each run of a probe.
	Probed(one Probed)
	// ForgotProbes is called when a revision of a pod is not probed any more.
	ForgotProbes(key pod.Key, uid pod.UID)
}

// noopObserver is used without an observer.
type noopObserver struct{}

func (noopObserver) Probed(Probed)                 {}
func (noopObserver) ForgotProbes(pod.Key, pod.UID) {}

// results are the words of the kubelet's metric for outcomes.
var results = map[outcome]string{unknown: "unknown", succeeded: "successful", warned: "successful", failed: "failed"}

// observe reports one run of a probe.
func (p *Prober) observe(i *instance, kind string, a answer, took time.Duration) {
	p.observer.Probed(Probed{
		Pod: i.key, UID: i.Pod.UID, Container: i.Container.Name,
		Type: strings.ToUpper(kind[:1]) + kind[1:], Result: results[a.outcome], Duration: took,
	})
}

// forgotten reports the revisions of a pod that had instances before and have none now.
func (p *Prober) forgotten(key pod.Key, before, now map[string]*instance) {
	kept := map[pod.UID]bool{}
	for _, i := range now {
		kept[i.Pod.UID] = true
	}
	for _, i := range before {
		if uid := i.Pod.UID; !kept[uid] {
			kept[uid] = true
			p.observer.ForgotProbes(key, uid)
		}
	}
}
