package node

import (
	"fmt"
	"log/slog"

	"k8s.io/utils/cpuset"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/device"
	"podrun.io/podrun/internal/device/cpus"
)

// reserved returns the CPUs that no container has for itself.
func (c Config) reserved() (cpuset.CPUSet, error) {
	if c.ReservedCPUs == nil {
		return cpuset.New(), nil
	}
	return cpuset.Parse(c.ReservedCPUs.String())
}

// CPUs returns the CPUs of this machine and their policy. A configuration that does not fit the machine is an error.
func (c Config) CPUs(log *slog.Logger) (device.CPUs, error) {
	all, err := readCPUs()
	if err != nil && c.CPUPolicy != staticPolicy && c.ReservedCPUs == nil {
		log.Debug("reading the machine's CPUs failed", "err", err)
		return device.CPUs{}, nil
	}
	if err != nil {
		return device.CPUs{}, fmt.Errorf("cpuPolicy: %w", err)
	}
	return c.of(all)
}

// of applies the configuration to a machine that has all these CPUs.
func (c Config) of(all cpuset.CPUSet) (device.CPUs, error) {
	reserved, err := c.reserved()
	if err != nil {
		return device.CPUs{}, fmt.Errorf("reservedCPUs: %w", err)
	}
	out := device.CPUs{Static: c.CPUPolicy == staticPolicy, All: all, Reserved: reserved}
	if rest := reserved.Difference(all); !rest.IsEmpty() {
		return out, fmt.Errorf("reservedCPUs: %s: this machine has the CPUs %s", rest, all)
	}
	if reserved.Equals(all) {
		return out, fmt.Errorf("reservedCPUs: %s are all CPUs of this machine, and none is left for pods", reserved)
	}
	if out.Static {
		out.Topology, err = cpus.Read(all)
	}
	return out, err
}

func readCPUs() (cpuset.CPUSet, error) {
	tree, err := cgroup.Open()
	if err != nil {
		return cpuset.New(), err
	}
	text, err := tree.CPUs()
	if err != nil {
		return cpuset.New(), err
	}
	return cpuset.Parse(text)
}
