package agent

import (
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/network/dns"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
)

// overhearing is a Publisher that also passes the addresses of every published pod to names.
type overhearing struct {
	reconcile.Publisher
	names *dns.Names
	also  func(p *v1.Pod) // may be nil
}

// Publish implements reconcile.Publisher. It passes on the addresses only when the pod is settled.
func (o overhearing) Publish(p *v1.Pod, settled bool) error {
	if o.also != nil {
		o.also(p)
	}
	if settled {
		o.names.SetIPs(pod.KeyOf(p), p.Status.PodIPs)
	}
	return o.Publisher.Publish(p, settled)
}

// Gone implements reconcile.Publisher.
func (o overhearing) Gone(key pod.Key) error {
	o.names.SetIPs(key, nil)
	return o.Publisher.Gone(key)
}
