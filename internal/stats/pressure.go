package stats

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podrun.io/podrun/internal/cgroup"
)

// AddPressure adds to groups how long their processes, and the machine's, have waited for resources. It
// reads three files for each.
func (s *Stats) AddPressure(to *Groups) {
	to.Pressure = s.o.Pressure(machine)
	for i := range to.All {
		to.All[i].Pressure = s.o.Pressure(to.All[i].Path)
	}
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
