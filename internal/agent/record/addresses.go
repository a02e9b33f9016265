package record

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
)

// Addresses passes on statuses, and the addresses of every published pod to Names.
type Addresses struct {
	reconcile.Publisher
	Names interface {
		SetIPs(key pod.Key, ips []v1.PodIP)
	}
	Also func(p *v1.Pod) // is called with each status first; may be nil
}

// Publish implements reconcile.Publisher. It passes on the addresses only when the pod is settled.
func (a Addresses) Publish(of *v1.Pod, seen time.Time, settled bool) error {
	if a.Also != nil {
		a.Also(of)
	}
	if settled {
		a.Names.SetIPs(pod.KeyOf(of), of.Status.PodIPs)
	}
	return a.Publisher.Publish(of, seen, settled)
}

// Gone implements reconcile.Publisher.
func (a Addresses) Gone(key pod.Key) error {
	a.Names.SetIPs(key, nil)
	return a.Publisher.Gone(key)
}
