// Package resources has what the machine gives to pods and containers: its features, which a
// container may request, including the seccomp profiles of its administrator (Machine); the cgroups
// of pods, their limits and their resizing (PodCgroups, Resizer); and the measurement of the space
// that containers use in their root filesystems (LayerMeter).
//
// The cgroups of containers are created by the low-level runtime (runc). Which seccomp profile a
// container gets is decided by package oci.
//
// Begin reading at Machine and PodCgroups.
package resources

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/pkg/apparmor"
	"github.com/containerd/containerd/v2/pkg/cap"
	containerdoci "github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys/memo"
)

// MachineOptions configure a Machine. SeccompDir is required.
type MachineOptions struct {
	// SeccompDir is the directory of the administrator's seccomp profiles.
	SeccompDir string
	// SeccompDefault gives containers without a seccomp profile the profile of RuntimeDefault.
	SeccompDefault bool
}

// Machine is the machine with its features. Its methods may be called concurrently.
type Machine struct {
	cgroups        *cgroup.Tree
	seccompDir     string
	seccompDefault bool
	limits         limits
	// oomPolicy has what systemd has answered to OOMPolicy.
	oomPolicy memo.Map[string, bool]
}

// NewMachine returns the Machine with the limits that it has now.
func NewMachine(o MachineOptions) (*Machine, error) {
	cgroups, err := cgroup.Open()
	if err != nil {
		return nil, err
	}
	return &Machine{
		cgroups: cgroups, seccompDir: o.SeccompDir, seccompDefault: o.SeccompDefault,
		limits: machineLimits(cgroups),
	}, nil
}

// For returns the features of the machine that the container requests: capabilities, devices,
// labels and profiles. It returns an error if the machine does not have one of them.
func (m *Machine) For(p *v1.Pod, c *v1.Container) (oci.Machine, error) {
	out := m.always()
	sc := pod.Security(p, c)
	var err error
	if out.PageSizes, err = m.pageSizes(p, c); err != nil {
		return out, err
	}
	if out.ProcessLabel, out.FileLabel, err = seLinux(p.UID, sc.SELinuxOptions); err != nil {
		return out, err
	}
	if pod.Privileged(c) || addsAll(sc.Capabilities) {
		if out.Capabilities, err = cap.Current(); err != nil {
			return out, fmt.Errorf("reading the capabilities of this machine: %w", err)
		}
	}
	if pod.Privileged(c) {
		if out.Devices, err = containerdoci.HostDevices(); err != nil {
			return out, fmt.Errorf("listing the devices of this machine: %w", err)
		}
		out.AppArmorProfile, err = appArmor(unconfined(), apparmor.HostSupports())
		return out, err
	}
	if s := sc.SeccompProfile; s != nil && s.Type == v1.SeccompProfileTypeLocalhost && s.LocalhostProfile != nil {
		if out.LocalhostSeccomp, err = m.localhostSeccomp(*s.LocalhostProfile); err != nil {
			return out, err
		}
	}
	out.AppArmorProfile, err = appArmor(sc.AppArmorProfile, apparmor.HostSupports())
	return out, err
}

// always returns the features that do not depend on what a container requests.
func (m *Machine) always() oci.Machine {
	return oci.Machine{
		SeccompByDefault: m.seccompDefault, DefaultSeccomp: seccomp.DefaultProfile,
		Memory: m.limits.memory, LowestOOMScoreAdj: m.limits.lowestOOMScoreAdj, SwapLimits: m.limits.swap(),
		LimitsReservations: m.limits.reservations,
	}
}

// OOMPolicy reports whether containers of pods with this driver can have an OOMPolicy.
func (m *Machine) OOMPolicy(driver oci.Driver) bool {
	if driver != oci.Systemd || !cgroup.Unified() {
		return false
	}
	const answer = "OOMPolicy"
	has, known := m.oomPolicy.Get(answer)
	if known {
		return has
	}
	has, err := cgroup.ScopesHaveOOMPolicy()
	if err == nil { // else the next container asks again
		m.oomPolicy.Put(answer, has)
	}
	return has
}

// addsAll reports whether the capability ALL is added.
func addsAll(c *v1.Capabilities) bool {
	return c != nil && slices.ContainsFunc(c.Add, func(name v1.Capability) bool {
		return strings.EqualFold(string(name), "ALL")
	})
}

// localhostSeccomp reads a seccomp profile of the node's administrator. name is a relative path
// that does not leave its directory, which validation has checked.
func (m *Machine) localhostSeccomp(name string) (*specs.LinuxSeccomp, error) {
	path := filepath.Join(m.seccompDir, name)
	text, err := os.ReadFile(path) // trusted: the administrator's
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("seccomp profile %s is not there", path)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the seccomp profile: %w", err)
	}
	var profile specs.LinuxSeccomp
	if err := json.Unmarshal(text, &profile); err != nil {
		return nil, fmt.Errorf("seccomp profile %s: %w", path, err)
	}
	if profile.DefaultAction == "" { // for example {}: the container would have no filter
		return nil, fmt.Errorf("seccomp profile %s: defaultAction is missing", path)
	}
	return &profile, nil
}
