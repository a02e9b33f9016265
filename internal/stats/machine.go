package stats

import (
	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/sys"
)

// OfMachine returns the reader of what pods and the machine use. Without readable cgroups the usage of
// containers is left out.
func OfMachine(nodeName string, disks *Disks) *Stats {
	taken := func(string) (cgroup.Usage, error) { return cgroup.Usage{}, cgroup.ErrNoUsage }
	details := func(string) (cgroup.Details, error) { return cgroup.Details{}, cgroup.ErrNoUsage }
	processes := func(string) ([]int, error) { return nil, cgroup.ErrNoUsage }
	if tree, err := cgroup.Open(); err == nil {
		taken, details, processes = tree.Usage, tree.Details, tree.Processes
	}
	return New(Options{
		Node:      nodeName,
		Usage:     taken,
		Details:   details,
		Machine:   sys.ReadUsage,
		Processes: processes,
		Links:     sys.Links,
		Disks:     disks,
	})
}
