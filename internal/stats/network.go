package stats

import (
	"cmp"
	"path"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/sys"
)

// usualLink is the interface that the kubelet reports as the pod's main one.
const usualLink = "eth0"

// network returns the traffic of the interfaces in the kubelet's form; nil if there are no
// interfaces. The main interface is usualLink or, without it, the one with the most traffic.
func network(links []sys.Link, now time.Time) *kubelet.NetworkStats {
	if len(links) == 0 {
		return nil
	}
	out := &kubelet.NetworkStats{Time: metav1.Time{Time: now}}
	for _, l := range links {
		one := kubelet.InterfaceStats{
			Name:    l.Name,
			RxBytes: new(l.RxBytes), RxErrors: new(l.RxErrors),
			TxBytes: new(l.TxBytes), TxErrors: new(l.TxErrors),
		}
		out.Interfaces = append(out.Interfaces, one)
		if l.Name == usualLink {
			out.InterfaceStats = one
		}
	}
	if out.Name == "" { // then the one with the most traffic
		out.InterfaceStats = slices.MaxFunc(out.Interfaces, func(a, b kubelet.InterfaceStats) int {
			return cmp.Compare(*a.RxBytes+*a.TxBytes, *b.RxBytes+*b.TxBytes)
		})
	}
	return out
}

// inside adds to a pod's stats the number of its processes, its network traffic unless it uses the host network, and
// the pressure on it and on its containers.
func (s *Stats) inside(p *v1.Pod, cgroups map[string][]string, now time.Time, out *kubelet.PodStats) {
	var count uint64
	parent := "" // the pod's cgroup
	for i := range out.Containers {
		c := &out.Containers[i]
		own, pids, err := cgroup.First(s.o.Processes, cgroups[c.Name])
		if err != nil {
			continue // the container has just exited
		}
		count += uint64(len(pids))
		c.IO = s.pressure(own, c.CPU, c.Memory, now)
		parent = path.Dir(own)
	}
	if parent != "" {
		out.IO = s.pressure(parent, out.CPU, out.Memory, now)
		out.Network = network(s.links(p), now)
	}
	out.ProcessStats = &kubelet.ProcessStats{ProcessCount: &count}
}

// links returns the network interfaces of a pod; nil if the pod uses the host network or they cannot be read.
func (s *Stats) links(p *v1.Pod) []sys.Link {
	netns := s.o.Network(p)
	if p.Spec.HostNetwork || netns == "" {
		return nil
	}
	links, err := s.o.Links(netns)
	if err != nil {
		return nil // the pod has just ended
	}
	return links
}
