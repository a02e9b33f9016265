package start

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/instance"
)

// namespaces returns the namespaces that the sandbox's containers share.
func (st *ContainerStarter) namespaces(s pod.Sandbox) oci.Namespaces {
	at := st.o.Sandboxes.Paths(s)
	return oci.Namespaces{
		Network: at.Net, IPC: at.IPC, UTS: at.UTS, PID: at.PID, Shm: at.Shm,
		User: at.User, FirstUser: s.Details.FirstUser,
	}
}

// buildSpec builds the spec that containerd receives.
func (st *ContainerStarter) buildSpec(l *launch, input oci.Input) error {
	spec, err := oci.Build(input)
	if err != nil {
		return runtime.Permanent(runtime.ReasonConfig,
			fmt.Errorf("container %s: %w", l.Container.Name, err))
	}
	if err := st.addHostDetails(l, spec); err != nil {
		return err
	}
	public, err := st.withhold(l, input, spec)
	if err != nil {
		return err
	}
	if public != spec {
		if err := st.addHostDetails(l, public); err != nil {
			return err
		}
	}
	own := pod.Security(l.Pod, l.Container)
	l.privileged, l.public = own.Privileged != nil && *own.Privileged, public
	if l.spec, err = json.Marshal(public); err != nil {
		return fmt.Errorf("encoding the spec of %s: %w", l.Container.Name, err)
	}
	return nil
}

// addHostDetails adds to a spec what has to be read from the machine: mount flags and devices.
func (st *ContainerStarter) addHostDetails(l *launch, spec *specs.Spec) error {
	machines := spec.Linux.Devices // a privileged container has them
	spec.Linux.Devices = nil
	if err := addPlugged(l, spec); err != nil {
		return err
	}
	if err := addBlocks(l, spec); err != nil {
		return err
	}
	if l.Sandbox.Details.FirstUser != 0 {
		if err := keepFlags(spec.Mounts); err != nil {
			return err
		}
	}
	if err := st.addDevices(l, spec); err != nil {
		return err
	}
	st.setNodes(l, spec, machines)
	return nil
}

// hostname returns the host name that p's containers see.
func (st *ContainerStarter) hostname(p *v1.Pod) (string, error) {
	if p.Spec.HostNetwork {
		return os.Hostname()
	}
	return pod.KernelName(p, st.o.ClusterDomain)
}

// containerRecord returns the record of the container in containerd.
func (st *ContainerStarter) containerRecord(l *launch) containers.Container {
	c := containers.Container{
		ID: l.ID, Image: l.Image.Name, Labels: instance.Labels(l.Start, st.o.Dirs.Root),
		Runtime:     containers.RuntimeInfo{Name: l.handler.name, Options: l.handler.options},
		Spec:        instance.Encoded{URL: instance.SpecType, Value: l.spec},
		Snapshotter: st.o.Client.Snapshotter, SnapshotKey: l.ID,
	}
	if l.shim.Shared() {
		c.SandboxID = l.Sandbox.ID
	}
	return c
}
