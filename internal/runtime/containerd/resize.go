package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/containerd/daemon"
	"podrun.io/podrun/internal/runtime/containerd/instance"
)

// resourcesType is the type URL that containerd uses for the resources of a cgroup.
const resourcesType = "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources"

// ResizeContainer implements runtime.Driver.
func (r *Runtime) ResizeContainer(ctx context.Context, id string, p *v1.Pod, c *v1.Container) error {
	ctx = r.client.Context(ctx)
	record, there, err := r.lookup.Record(ctx, id)
	if err != nil || !there {
		return err
	}
	driver := oci.DriverOf(instance.CgroupsPathOf(record))
	machine, err := r.machineFor(p, c)
	if err != nil {
		return err
	}
	update := oci.Update(oci.Input{Pod: p, Container: c, Machine: machine, CgroupV2: cgroup.Unified()})
	own := instance.CgroupOf(record)
	if err := errors.Join(r.fits(own, update), r.fits(path.Dir(own), oci.PodUpdate(p, r.PodMaxPids))); err != nil {
		if r.hasExited(ctx, id) {
			return nil
		}
		return fmt.Errorf("resizing %s: %w", c.Name, err)
	}
	resources, err := json.Marshal(update)
	if err != nil {
		return fmt.Errorf("encoding the resources of %s: %w", c.Name, err)
	}
	// The kernel does not let a container have more CPU time than its pod. When the pod grows, its
	// cgroup is set first; when it shrinks, the pod's cgroup is set last, after the last of its
	// containers.
	early := r.resizePod(p, driver)
	_, err = r.client.TaskService().Update(ctx, &tasks.UpdateTaskRequest{
		ContainerID: id, Resources: typeurl.MarshalProto(instance.Encoded{URL: resourcesType, Value: resources}),
	})
	if err != nil {
		if r.hasExited(ctx, id) {
			return nil // the instance has exited meanwhile
		}
		return daemon.Mapped("resizing "+id, err)
	}
	if early != nil {
		if err := r.resizePod(p, driver); err != nil {
			r.Log.Debug("cgroup of the pod cannot be resized yet", "pod", pod.KeyOf(p), "err", err)
		}
	}
	return nil
}

// hasExited reports whether the instance has exited.
func (r *Runtime) hasExited(ctx context.Context, id string) bool {
	t, err := r.lookup.Task(ctx, id)
	return err == nil && (t == nil || t.Status == task.Status_STOPPED)
}

// fits returns an error if a memory limit is below the memory in use: a kernel that accepts such a
// limit frees the memory by killing processes. As in the kubelet, except that file pages that are
// not in use do not count, because the kernel reclaims them.
func (r *Runtime) fits(dir string, to *specs.LinuxResources) error {
	if to == nil || to.Memory == nil || to.Memory.Limit == nil || *to.Memory.Limit <= 0 {
		return nil
	}
	used, err := r.cgroups.Usage(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, cgroup.ErrNoUsage):
		return nil // nothing runs in it, or nothing is limited here
	case err != nil:
		return err
	case used.WorkingSet > *to.Memory.Limit:
		return fmt.Errorf("the memory limit %d is below the memory in use, %d", *to.Memory.Limit, used.WorkingSet)
	}
	return nil
}

// resizePod sets the pod's own cgroup to the current sum of its containers.
func (r *Runtime) resizePod(p *v1.Pod, driver oci.Driver) error {
	resources := oci.PodUpdate(p, r.PodMaxPids)
	if resources == nil {
		return nil
	}
	if err := r.setPod(p, driver, resources); err != nil {
		return err
	}
	r.sizes.Put(p.UID, pod.SizeOf(p))
	return nil
}

// fitPod resizes the pod's cgroup if the size in the manifest differs from the size that was set
// last: the container that is to start may be the cause.
func (r *Runtime) fitPod(p *v1.Pod, driver oci.Driver) error {
	size := pod.SizeOf(p)
	if had, known := r.sizes.Get(p.UID); known && had == size || size == "" {
		return nil
	}
	return r.resizePod(p, driver)
}
