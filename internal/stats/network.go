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

// inside adds to a pod's stats what is read through its processes: their number and, unless the pod
// uses the host network, its network traffic; and the pressure on it and on its containers.
func (s *Stats) inside(p *v1.Pod, cgroups map[string][]string, now time.Time, out *kubelet.PodStats) {
	var count uint64
	for i := range out.Containers {
		c := &out.Containers[i]
		own, pids, err := cgroup.First(s.o.Processes, cgroups[c.Name])
		if err != nil {
			continue // the container has just exited
		}
		count += uint64(len(pids))
		if out.Network == nil {
			out.Network = network(s.links(p, own, pids), now)
		}
		c.IO = s.pressure(own, c.CPU, c.Memory, now)
		if out.IO == nil {
			out.IO = s.pressure(path.Dir(own), out.CPU, out.Memory, now)
		}
	}
	out.ProcessStats = &kubelet.ProcessStats{ProcessCount: &count}
}

// links returns the network interfaces of a pod, read through the processes of the cgroup at path; nil
// if the pod uses the host network or they cannot be read.
func (s *Stats) links(p *v1.Pod, path string, pids []int) []sys.Link {
	if p.Spec.HostNetwork || len(pids) == 0 {
		return nil
	}
	links, err := s.o.Links(pids[0])
	if err != nil {
		return nil
	}
	// The kernel may have given the PID to another process meanwhile.
	if still, err := s.o.Processes(path); err != nil || !slices.Contains(still, pids[0]) {
		return nil
	}
	return links
}

// pressure adds the pressure on the cgroup at path to its stats, which may be nil, and returns that of its I/O; nil if
// the kernel does not say.
func (s *Stats) pressure(
	path string, cpu *kubelet.CPUStats, memory *kubelet.MemoryStats, now time.Time,
) *kubelet.IOStats {
	p := s.o.Pressure(path)
	if cpu != nil {
		cpu.PSI = stalls(p.CPU)
	}
	if memory != nil {
		memory.PSI = stalls(p.Memory)
	}
	if p.IO == nil {
		return nil
	}
	return &kubelet.IOStats{Time: metav1.Time{Time: now}, PSI: stalls(p.IO)}
}

// stalls returns stalls in the kubelet's form.
func stalls(of *cgroup.Stalls) *kubelet.PSIStats {
	if of == nil {
		return nil
	}
	form := func(s cgroup.Stall) kubelet.PSIData {
		return kubelet.PSIData{Total: uint64(s.Total), Avg10: s.Avg10, Avg60: s.Avg60, Avg300: s.Avg300}
	}
	return &kubelet.PSIStats{Full: form(of.Full), Some: form(of.Some)}
}
