package containerd

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/typeurl/v2"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/ocispec"
	"podrun.io/podrun/internal/pod"
)

// resourcesType is what containerd calls the type of a cgroup's resources.
const resourcesType = "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources"

// ResizeContainer implements runtime.Containers. The label comes last: cut before, it is merely done again.
func (r *Runtime) ResizeContainer(ctx context.Context, id string, p *v1.Pod, c *v1.Container) error {
	ctx = r.context(ctx)
	if _, there, err := r.ours(ctx, id); err != nil || !there {
		return err
	}
	machine, err := r.machineFor(p, c)
	if err != nil {
		return err
	}
	resources, err := json.Marshal(ocispec.Update(ocispec.Input{Pod: p, Container: c, Machine: machine, CgroupV2: cgroup.Unified()}))
	if err != nil {
		return fmt.Errorf("encoding the resources of %s: %w", c.Name, err)
	}
	// The kernel lets no container have more CPU time than its pod: when that grows the pod is first, when
	// it shrinks the pod is last, after the last of its containers.
	early := r.resizePod(p)
	_, err = r.client.TaskService().Update(ctx, &tasks.UpdateTaskRequest{
		ContainerID: id, Resources: typeurl.MarshalProto(encoded{resourcesType, resources}),
	})
	if err != nil {
		if t, unseen := r.task(ctx, id); unseen == nil && (t == nil || t.Status == task.Status_STOPPED) {
			return nil // it has ended meanwhile
		}
		return mapped("resizing "+id, err)
	}
	if early != nil {
		if err := r.resizePod(p); err != nil {
			r.Log.Debug("the pod's cgroup keeps its size for now", "pod", pod.KeyOf(p), "why", err)
		}
	}
	label := containers.Container{ID: id, Labels: map[string]string{labelResources: pod.ResourcesOf(p, c)}}
	if _, err := r.client.ContainerService().Update(ctx, label, "labels."+labelResources); err != nil && !isNotFound(err) {
		return mapped("recording the resources of "+id, err)
	}
	return nil
}

// resizePod gives the pod's own cgroup what its containers have together now.
func (r *Runtime) resizePod(p *v1.Pod) error {
	resources := ocispec.PodUpdate(p, r.PodMaxPids)
	if resources == nil {
		return nil
	}
	if err := r.cgroups.Set(ocispec.CgroupParent(p), resources); err != nil {
		return err
	}
	r.weighBurstable(ocispec.CgroupParent(p))
	r.sizes.put(p.UID, sizeOf(p))
	return nil
}

// fitPod resizes the pod's cgroup if its manifest has another size than it was made with: the container
// that is to start may be why.
func (r *Runtime) fitPod(p *v1.Pod) error {
	size := sizeOf(p)
	if had, known := r.sizes.get(p.UID); known && had == size || size == "" {
		return nil
	}
	return r.resizePod(p)
}

// sizeOf spells the resources of all of p's containers; "" where none has any.
func sizeOf(p *v1.Pod) string {
	var size string
	for _, c := range pod.AllContainers(p) {
		if of := pod.ResourcesOf(p, c); of != "" {
			size += c.Name + ":" + of + ";"
		}
	}
	return size
}
