// Package flags has the flags that commands share, and turns them into options: Global are those of
// all commands, Run those of serve and once; the others each have one subject, such as garbage
// collection.
//
// It uses pflag but not cobra, and runs nothing: package cmd adds the flags to commands. A flag of
// a single command is in package cmd.
//
// Begin reading at Run.
package flags

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/agent/node"
	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
)

// The bounds of the longest crash back-off are those of the kubelet's
// crashLoopBackOff.maxContainerRestartPeriod (pkg/kubelet/apis/config/validation).
const (
	leastRestartPeriod = time.Second
	mostRestartPeriod  = 5 * time.Minute
)

// Run are the flags that serve and once have in common.
type Run struct {
	sources          Sources
	relistPeriod     time.Duration
	events           string
	maxRestartPeriod time.Duration
	network          Network
	seccompDefault   bool
	podMaxPids       int64
	cgroupDriver     string
	allowedSysctls   []string
	nodeConfig       string
	nodeLabels       nodeLabels
	cdiDirs          []string
	registry         Registry
	preferLocal      bool
	imageDir         string
	logs             Logs
}

// Add adds the flags to f.
func (r *Run) Add(f *pflag.FlagSet) {
	r.sources.Add(f)
	f.DurationVar(&r.relistPeriod, "relist-period", time.Second,
		"how often containers are listed while there is no event stream")
	f.StringVar(&r.events, "events", "auto", "use containerd's event stream: auto, on or off")
	f.DurationVar(&r.maxRestartPeriod, "max-container-restart-period", mostRestartPeriod,
		"maximum crash back-off, between 1s and 5m")
	f.BoolVar(&r.seccompDefault, "seccomp-default", false,
		"use the RuntimeDefault seccomp profile for containers without a profile")
	f.StringSliceVar(&r.allowedSysctls, "allowed-unsafe-sysctls", nil,
		"sysctls that pods may set in addition to the safe ones (kernel.msg*,net.core.somaxconn)")
	f.StringSliceVar(&r.cdiDirs, "cdi-spec-dirs", []string{"/etc/cdi", "/var/run/cdi"},
		"directories of CDI specifications, for devices that pods request by annotations cdi.k8s.io/…")
	f.StringVar(&r.nodeConfig, "node-config", "", "file with the runtime classes, devices and CPU policy of this node")
	f.Int64Var(&r.podMaxPids, "pod-max-pids", -1, "maximum number of processes per pod; -1: no limit")
	f.StringVar(&r.cgroupDriver, "cgroup-driver", string(oci.Cgroupfs),
		"driver that manages the pods' cgroups: cgroupfs, or systemd for slices and scopes")
	r.nodeLabels.add(f)
	r.network.Add(f)
	r.registry.Add(f)
	r.logs.Add(f)
	f.BoolVar(&r.preferLocal, "prefer-local", false,
		"use a local image if an image with imagePullPolicy Always cannot be pulled")
	f.StringVar(&r.imageDir, "image-dir", "",
		"directory of OCI and Docker archives to load at start (default: images in the root directory)")
	FromEnvironment(f)
}

// Options checks the flags, which are in f, and sets the options of the agent.
func (r *Run) Options(f *pflag.FlagSet, o *agent.Options) error {
	switch r.events {
	case "auto", "on", "off":
	default:
		return fmt.Errorf("--events %q: must be auto, on or off", r.events)
	}
	if err := positive(map[string]time.Duration{"relist-period": r.relistPeriod}); err != nil {
		return err
	}
	if d := r.maxRestartPeriod; d < leastRestartPeriod || d > mostRestartPeriod {
		return fmt.Errorf("--max-container-restart-period %s: must be at least %s and at most %s",
			d, leastRestartPeriod, mostRestartPeriod)
	}
	if r.podMaxPids == 0 || r.podMaxPids < -1 {
		return fmt.Errorf("--pod-max-pids %d: must be positive, or -1 for any number", r.podMaxPids)
	}
	for _, name := range r.allowedSysctls {
		if pod.SysctlNamespace(name) == "" {
			return fmt.Errorf("--allowed-unsafe-sysctls %q: is not namespaced; it applies to the whole machine", name)
		}
	}
	if err := r.sources.Options(f, o); err != nil {
		return err
	}
	var err error
	if o.NodeLabels, err = r.nodeLabels.options(); err != nil {
		return err
	}
	o.Connect.AllowedSysctls, o.Connect.CDIDirs = r.allowedSysctls, r.cdiDirs
	var config node.Config
	if r.nodeConfig != "" {
		if config, err = node.ReadConfig(r.nodeConfig); err != nil {
			return fmt.Errorf("--node-config: %w", err)
		}
	}
	if o.Connect.CPUs, err = config.CPUs(o.Log); err != nil {
		return fmt.Errorf("--node-config: %s: %w", r.nodeConfig, err)
	}
	o.Connect.RuntimeClasses, o.Connect.Devices = config.Classes(), config.Devices
	if o.Connect.CgroupDriver, err = cgroupDriver(r.cgroupDriver, cgroup.HasSystemd()); err != nil {
		return err
	}
	o.Connect.SeccompDefault, o.Connect.PodMaxPids = r.seccompDefault, max(r.podMaxPids, 0)
	o.PreferLocal, o.ImageDir = r.preferLocal, r.imageDir
	if err := errors.Join(
		r.registry.Options(f, &o.Connect),
		r.network.Options(o),
		r.logs.Options(o),
	); err != nil {
		return err
	}
	o.RelistPeriod, o.MaxBackoff, o.Events = r.relistPeriod, r.maxRestartPeriod, r.events
	return nil
}

// cgroupDriver returns the cgroup driver with a name. systemd tells whether systemd runs on this
// machine.
func cgroupDriver(name string, systemd bool) (oci.Driver, error) {
	switch d := oci.Driver(name); {
	case d == oci.Cgroupfs, d == oci.Systemd && systemd:
		return d, nil
	case d == oci.Systemd:
		return "", errors.New("--cgroup-driver systemd: systemd does not run here " +
			"(there is no /run/systemd/system); cgroupfs works without it")
	default:
		return "", fmt.Errorf("--cgroup-driver %q: must be cgroupfs or systemd", name)
	}
}
