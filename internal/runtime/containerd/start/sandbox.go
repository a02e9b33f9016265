// Package start creates what a pod runs in and starts its containers: sandboxes, specs, shims, root
// filesystems and tasks. It leaves Secret values out of the specs (secretenv.go), and labels
// volumes for SELinux (mounts.go). It also removes sandboxes; instances are removed by package
// stop.
//
// The content of a spec is computed by package oci, namespaces are created by package sandbox.
//
// Begin reading at SandboxStarter, ContainerStarter and StartContainer.
package start

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/device"
	"podrun.io/podrun/internal/network"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/instance"
	"podrun.io/podrun/internal/runtime/containerd/resources"
	"podrun.io/podrun/internal/runtime/containerd/shimpool"
	"podrun.io/podrun/internal/sandbox"
)

// Sandboxes creates and removes sandboxes: what the containers of a pod share. It is implemented by
// sandbox.Store.
type Sandboxes interface {
	Prepare(p *v1.Pod) (pod.SandboxDetails, error)
	Create(ctx context.Context, p *v1.Pod, s pod.Sandbox) (pod.Sandbox, error)
	Ready(s pod.Sandbox) bool
	Remove(ctx context.Context, s pod.Sandbox) error
	YieldPorts(ctx context.Context, id string) error
	// Paths returns the paths of the sandbox's namespaces and shared memory.
	Paths(s pod.Sandbox) sandbox.Paths
}

// SandboxOptions configure a SandboxStarter. All but AllowedSysctls are required.
type SandboxOptions struct {
	Client    *daemon.Client
	Handlers  *Handlers
	Shims     *shimpool.Pool
	Sandboxes Sandboxes
	Cgroups   *resources.PodCgroups
	Devices   *device.Devices
	Records   *instance.SandboxRecords
	// CgroupDriver is the cgroup driver of new pods.
	CgroupDriver oci.Driver
	// AllowedSysctls are kernel parameters that pods may set in addition to the safe ones.
	AllowedSysctls []string
}

// SandboxStarter creates and removes sandboxes with what containerd and podrun have for them. Its
// methods may be called concurrently.
type SandboxStarter struct{ o SandboxOptions }

// NewSandboxStarter returns a SandboxStarter.
func NewSandboxStarter(o SandboxOptions) *SandboxStarter { return &SandboxStarter{o} }

// PrepareSandbox implements runtime.Driver. It returns an error for a pod that cannot run on this
// node.
func (st *SandboxStarter) PrepareSandbox(p *v1.Pod) (pod.SandboxDetails, error) {
	if err := st.allowSysctls(p); err != nil {
		return pod.SandboxDetails{}, err
	}
	h, err := st.o.Handlers.of(p)
	if err != nil {
		return pod.SandboxDetails{}, err
	}
	if err := h.setCgroupDriver(st.o.CgroupDriver); err != nil {
		return pod.SandboxDetails{}, err
	}
	if err := st.allowUsers(p); err != nil {
		return pod.SandboxDetails{}, err
	}
	return st.o.Sandboxes.Prepare(p)
}

// CreateSandbox implements runtime.Driver.
func (st *SandboxStarter) CreateSandbox(ctx context.Context, p *v1.Pod, s pod.Sandbox) (pod.Sandbox, error) {
	acquire := func(ctx context.Context) error { return st.o.Devices.Acquire(ctx, s.ID, p) }
	if err := plugged(ctx, p, acquire); err != nil {
		return pod.Sandbox{}, &runtime.ReasonError{Reason: runtime.ReasonAdmission, Err: err}
	}
	if err := st.o.Cgroups.Create(p, driverOf(s)); err != nil {
		return pod.Sandbox{}, err
	}
	made, err := st.o.Sandboxes.Create(ctx, p, s)
	if taken := (*network.PortInUseError)(nil); errors.As(err, &taken) {
		return made, &runtime.ReasonError{Reason: runtime.ReasonHostPortConflict, Err: err}
	}
	return made, err
}

// SandboxReady implements runtime.Driver.
func (st *SandboxStarter) SandboxReady(s pod.Sandbox) bool { return st.o.Sandboxes.Ready(s) }

// YieldPorts implements runtime.Driver.
func (st *SandboxStarter) YieldPorts(ctx context.Context, id string) error {
	return st.o.Sandboxes.YieldPorts(ctx, id)
}

// RemoveSandbox implements runtime.Driver.
func (st *SandboxStarter) RemoveSandbox(ctx context.Context, key pod.Key, s pod.Sandbox, last bool) error {
	ctx = st.o.Client.Context(ctx)
	if err := st.o.Records.Remove(ctx, s.ID); err != nil {
		return err
	}
	if err := st.o.Shims.Kill(ctx, key, s); err != nil {
		return err
	}
	if err := st.o.Sandboxes.Remove(ctx, s); err != nil {
		return err
	}
	if err := st.o.Devices.Release(s.ID); err != nil {
		return err
	}
	if last { // only now nothing of the sandbox is in the pod's cgroup
		st.o.Cgroups.Release(ctx, s.UID)
	}
	return nil
}

// allowSysctls returns an error for a pod that sets a kernel parameter that is neither safe nor
// allowed on this node.
func (st *SandboxStarter) allowSysctls(p *v1.Pod) error {
	if p.Spec.SecurityContext == nil {
		return nil
	}
	for _, s := range p.Spec.SecurityContext.Sysctls {
		if !pod.SafeSysctl(s.Name, st.o.AllowedSysctls) {
			return runtime.Permanent("SysctlForbidden",
				fmt.Errorf("sysctl %s is not safe, and not among this node's --allowed-unsafe-sysctls", s.Name))
		}
	}
	return nil
}

// allowUsers returns an error for a pod with its own user namespace (hostUsers: false) if its users
// could not own their root filesystem here.
func (st *SandboxStarter) allowUsers(p *v1.Pod) error {
	if p.Spec.HostUsers == nil || *p.Spec.HostUsers {
		return nil
	}
	if share := p.Spec.ShareProcessNamespace; share != nil && *share {
		return runtime.Permanent("FailedCreatePodSandBox",
			errors.New("hostUsers: false beside shareProcessNamespace: true is not supported"))
	}
	if st.o.Client.Remaps {
		return nil
	}
	return runtime.Permanent("FailedCreatePodSandBox",
		fmt.Errorf("hostUsers: false: containerd's snapshotter %s cannot give the pod's users their root "+
			"filesystem here: that needs overlayfs, containerd 2.0 and Linux 5.19 "+
			"(see ctr plugins list -d, capability %s)", st.o.Client.Snapshotter, daemon.RemapIDs))
}
