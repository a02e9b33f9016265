package resources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/instance"
)

// resourcesType is the type URL that containerd uses for the resources of a cgroup.
const resourcesType = "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources"

// ResizerOptions configure a Resizer. All are required.
type ResizerOptions struct {
	Client  *daemon.Client
	Lookup  *instance.Lookup
	Machine *Machine
	Cgroups *PodCgroups
}

// Resizer changes the resources of running containers and of their pods. Its methods may be called
// concurrently.
type Resizer struct {
	client  *daemon.Client
	lookup  *instance.Lookup
	machine *Machine
	cgroups *PodCgroups
}

// NewResizer returns a Resizer.
func NewResizer(o ResizerOptions) *Resizer {
	return &Resizer{o.Client, o.Lookup, o.Machine, o.Cgroups}
}

// ResizeContainer implements runtime.Driver.
func (r *Resizer) ResizeContainer(ctx context.Context, to runtime.Resize) error {
	ctx = r.client.Context(ctx)
	record, there, err := r.lookup.Record(ctx, to.ID)
	if err != nil || !there {
		return err
	}
	p, c := to.Pod, to.Container
	in := oci.Input{Pod: p, Container: c, CPUs: to.CPUs, Machine: r.machine.always(), CgroupV2: cgroup.Unified()}
	if to.CPUs != "" { // first, whatever hinders the rest: the CPUs that it leaves may be another's own
		if err := r.update(ctx, to.ID, oci.UpdateCPUs(in)); err != nil {
			return err
		}
	}
	driver := oci.DriverOf(instance.CgroupsPathOf(record))
	if in.Machine, err = r.machine.For(p, c); err != nil {
		return err
	}
	update := oci.Update(in)
	after := maps.Clone(to.Running)
	delete(after, c.Name)
	own := instance.CgroupOf(record)
	err = errors.Join(
		r.cgroups.fits(own, update),
		r.cgroups.fits(path.Dir(own), oci.PodUpdate(held(p, after), r.cgroups.rules)),
	)
	if err != nil {
		if r.hasExited(ctx, to.ID) {
			return nil
		}
		return fmt.Errorf("resizing %s: %w", c.Name, err)
	}
	// The kernel does not let a container have more than its pod.
	if err := r.cgroups.Fit(p, driver, to.Running); err != nil {
		return fmt.Errorf("resizing the pod of %s: %w", c.Name, err)
	}
	if err := r.update(ctx, to.ID, update); err != nil {
		return err
	}
	if err := r.cgroups.Fit(p, driver, after); err != nil {
		return fmt.Errorf("resizing the pod of %s: %w", c.Name, err) // it has too much until that is done
	}
	return nil
}

// update changes the resources of an instance. It ignores one that has exited.
func (r *Resizer) update(ctx context.Context, id string, to *specs.LinuxResources) error {
	resources, err := json.Marshal(to)
	if err != nil {
		return fmt.Errorf("encoding the resources of %s: %w", id, err)
	}
	_, err = r.client.TaskService().Update(ctx, &tasks.UpdateTaskRequest{
		ContainerID: id, Resources: typeurl.MarshalProto(instance.Encoded{URL: resourcesType, Value: resources}),
	})
	if err != nil && !r.hasExited(ctx, id) {
		return daemon.Mapped("resizing "+id, err)
	}
	return nil
}

// hasExited reports whether the instance has exited.
func (r *Resizer) hasExited(ctx context.Context, id string) bool {
	t, err := r.lookup.Task(ctx, id)
	return err == nil && (t == nil || t.Status == task.Status_STOPPED)
}
