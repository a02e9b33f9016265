package stats

import (
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/sys"
)

// OfMachine returns the reader of what pods and the machine use. Without readable cgroups the usage of
// containers is left out. network is for Options.Network.
func OfMachine(nodeName string, disks *Disks, network func(*v1.Pod) string) *Stats {
	taken := func(string) (cgroup.Usage, error) { return cgroup.Usage{}, cgroup.ErrNoUsage }
	details := func(string) (cgroup.Details, error) { return cgroup.Details{}, cgroup.ErrNoUsage }
	processes := func(string) ([]int, error) { return nil, cgroup.ErrNoUsage }
	pressure := func(string) cgroup.Pressure { return cgroup.Pressure{} }
	if tree, err := cgroup.Open(); err == nil {
		taken, details, processes, pressure = tree.Usage, tree.Details, tree.Processes, tree.Pressure
	}
	return New(Options{
		Node:    nodeName,
		Usage:   taken,
		Details: details,
		Pressure: func(path string) cgroup.Pressure {
			if path == machine {
				return cgroup.MachinePressure()
			}
			return pressure(path)
		},
		Machine:   sys.ReadUsage,
		Processes: processes,
		Links:     sys.Links,
		Network:   network,
		Disks:     disks,
	})
}
