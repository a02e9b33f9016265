package stats

import (
	"context"
	"errors"
	"math"
	"path"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// Group is a cgroup of a running pod: that of a container or, with an empty Container, the pod's own.
type Group struct {
	Pod *v1.Pod
	// Container is the name of the container, ID its container ID, and Image its image.
	Container, ID, Image string
	// Path is the cgroup's path.
	Path    string
	Started time.Time
	Details cgroup.Details
	// Pressure is how long its processes waited for resources; AddPressure sets it.
	Pressure cgroup.Pressure
	// Processes is their number.
	Processes int
	// Links are the interfaces of a pod that does not use the host network. A container has none of
	// its own.
	Links []sys.Link
	// Disk is the size of the container's writable layer; nil if it is not known.
	Disk *pod.Space
}

// Groups are the cgroups of all running pods, and what the machine uses.
type Groups struct {
	Machine sys.Usage
	// Pressure is the machine's; AddPressure sets it.
	Pressure cgroup.Pressure
	// Links are the machine's interfaces.
	Links []sys.Link
	All   []Group
	// Data is the file system of podrun's data, and Layers that of the containers' writable layers.
	Data, Layers Volume
}

// Volume is a file system on a block device; without one, Device is empty.
type Volume struct {
	Device string
	sys.FS
}

// Groups returns what the running pods use, cgroup by cgroup, as often as one wants. The sizes of
// writable layers may be a minute old. What cannot be read is left out, and the error says why.
func (s *Stats) Groups(ctx context.Context, pods []v1.Pod) (Groups, error) {
	var out Groups
	var failed [4]error
	out.Machine, failed[0] = s.o.Machine()
	out.Links, failed[1] = s.o.Links("")
	var layers map[pod.UID]measured
	if s.disks != nil {
		layers, failed[2] = s.disks.layers(ctx, pods)
		failed[3] = s.disks.fileSystems(&out)
	}
	for i := range pods {
		out.All = append(out.All, s.groups(&pods[i], layers[pods[i].UID])...)
	}
	return out, errors.Join(failed[:]...)
}

// groups returns the cgroups of a pod; none if none of its containers runs.
func (s *Stats) groups(p *v1.Pod, disk measured) (out []Group) {
	whole := Group{Pod: p}
	for _, all := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range all {
			c := &all[i]
			if c.State.Running == nil {
				continue
			}
			_, id, _ := strings.Cut(c.ContainerID, "://")
			own, details, err := cgroup.First(s.o.Details, oci.CgroupsOfContainer(p, id))
			if err != nil {
				continue // the container has just exited
			}
			one := Group{
				Pod: p, Container: c.Name, ID: id, Image: c.Image, Path: own, Started: c.State.Running.StartedAt.Time,
				Details: weighed(p, c.Name, details),
			}
			if used, known := disk.usage.Roots[c.Name]; known {
				one.Disk = &used
			}
			pids, _ := s.o.Processes(own)
			one.Processes = len(pids)
			whole.Processes += one.Processes
			whole.Path = path.Dir(own)
			out = append(out, one)
		}
	}
	if len(out) == 0 {
		return nil
	}
	whole.Links = s.links(p)
	if p.Status.StartTime != nil {
		whole.Started = p.Status.StartTime.Time
	}
	var err error
	if whole.Details, err = s.o.Details(whole.Path); err != nil {
		return out
	}
	return append(out, whole)
}

// weighed returns the details of a container with the weight that is nearer to what the manifest asks
// for: unlike pods' weights, runc sets it, and older ones convert it otherwise.
func weighed(p *v1.Pod, container string, d cgroup.Details) cgroup.Details {
	c := pod.FindContainer(p, container)
	if c == nil || d.Quota.LinearShares == 0 {
		return d
	}
	from := func(shares int64) float64 { return math.Abs(float64(shares) - float64(oci.Shares(p, c))) }
	if from(d.Quota.LinearShares) < from(d.Quota.Shares) {
		d.Quota.Shares = d.Quota.LinearShares
	}
	return d
}

// layers returns measurements that are at most scrapedFor old.
func (s *storage) layers(ctx context.Context, pods []v1.Pod) (map[pod.UID]measured, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.measure(ctx, pods, scrapedFor)
	return s.pods, err
}

// fileSystems adds the file systems to out.
func (s *storage) fileSystems(out *Groups) (err error) {
	for _, one := range []struct {
		path string
		to   *Volume
	}{{s.Data, &out.Data}, {s.Root, &out.Layers}} {
		var failed error
		if one.to.FS, failed = s.FS(one.path); failed == nil {
			one.to.Device = s.Device(one.path)
		}
		err = errors.Join(err, failed)
	}
	return err
}
