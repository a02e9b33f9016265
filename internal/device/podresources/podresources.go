// Package podresources tells monitors which pod has which devices, by the kubelet's API PodResources v1.
// Clients mount the directory of its socket.
//
// It is a reader: what it tells is kept by package device, and by the checkpoints of the pods. Begin reading at
// Server.List.
package podresources

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/cpuset"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/device"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys/socket"
)

// Options configure a Server. All are required.
type Options struct {
	// Dir is the directory of the socket: /var/lib/kubelet/pod-resources.
	Dir     string
	Devices *device.Devices
	// Pods returns the pods that have a sandbox.
	Pods func() ([]device.Pod, error)
}

// Server answers the API.
type Server struct {
	podresources.UnimplementedPodResourcesListerServer
	o Options
}

// Run makes the directory and the socket, and answers there until ctx ends.
func Run(ctx context.Context, o Options) error {
	if err := os.MkdirAll(o.Dir, layout.ModePlugins); err != nil {
		return err
	}
	l, err := socket.Listen(filepath.Join(o.Dir, "kubelet.sock"))
	if err != nil {
		return err
	}
	g := socket.Server()
	podresources.RegisterPodResourcesListerServer(g, &Server{o: o})
	defer context.AfterFunc(ctx, g.Stop)()
	return errors.Join(g.Serve(l), l.Remove())
}

// List implements the API: the pods that have a sandbox, with the devices of their containers. Like the kubelet
// it leaves out init containers other than sidecars.
func (s *Server) List(
	context.Context, *podresources.ListPodResourcesRequest,
) (*podresources.ListPodResourcesResponse, error) {
	all, err := s.o.Pods()
	if err != nil {
		return nil, err
	}
	out := &podresources.ListPodResourcesResponse{}
	for _, p := range all {
		out.PodResources = append(out.PodResources, s.of(p))
	}
	return out, nil
}

// Get implements the API: one pod by its name, which is an error if there is no such pod.
func (s *Server) Get(
	_ context.Context, r *podresources.GetPodResourcesRequest,
) (*podresources.GetPodResourcesResponse, error) {
	all, err := s.o.Pods()
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if p.Name == r.PodName && p.Namespace == r.PodNamespace {
			return &podresources.GetPodResourcesResponse{PodResources: s.of(p)}, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "pod %s in namespace %s is not on this node", r.PodName, r.PodNamespace)
}

// GetAllocatableResources implements the API: all devices that pods may get. CPUs and memory are listed only
// where a policy assigns them, as by the kubelet.
func (s *Server) GetAllocatableResources(
	context.Context, *podresources.AllocatableResourcesRequest,
) (*podresources.AllocatableResourcesResponse, error) {
	out := &podresources.AllocatableResourcesResponse{CpuIds: numbers(s.o.Devices.CPUPolicy().Allocatable())}
	all := s.o.Devices.All()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, id := range slices.Sorted(maps.Keys(all[name])) {
			if !all[name][id].Healthy {
				continue
			}
			out.Devices = append(out.Devices, entries(name, id, all[name][id].NUMA)...)
		}
	}
	return out, nil
}

// of returns what a pod has.
func (s *Server) of(p device.Pod) *podresources.PodResources {
	out := &podresources.PodResources{Name: p.Name, Namespace: p.Namespace}
	held := s.o.Devices.HeldBy(p.Sandbox, p.Pod)
	var near map[v1.ResourceName]map[string][]int64
	if len(held) > 0 {
		near = device.NUMA(s.o.Devices, p.Sandbox)
	}
	add := func(c *v1.Container) {
		of := &podresources.ContainerResources{Name: c.Name}
		for _, name := range slices.Sorted(maps.Keys(held[c.Name])) {
			if name == v1.ResourceCPU {
				of.CpuIds = numbers(device.CPUSet(held[c.Name][name]))
				continue
			}
			for _, id := range held[c.Name][name] {
				of.Devices = append(of.Devices, entries(name, id, near[name][id])...)
			}
		}
		out.Containers = append(out.Containers, of)
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if pod.IsSidecar(c) {
			add(c)
		}
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i])
	}
	return out
}

// numbers returns the numbers of CPUs; nil if there are none.
func numbers(set cpuset.CPUSet) []int64 {
	var out []int64
	for _, id := range set.List() {
		out = append(out, int64(id))
	}
	return out
}

// entries are the entries of a device: one for each NUMA node that it is near to, or one without.
func entries(name v1.ResourceName, id string, numa []int64) []*podresources.ContainerDevices {
	one := func() *podresources.ContainerDevices {
		return &podresources.ContainerDevices{ResourceName: string(name), DeviceIds: []string{id}}
	}
	if len(numa) == 0 {
		return []*podresources.ContainerDevices{one()}
	}
	var all []*podresources.ContainerDevices
	for _, node := range numa {
		d := one()
		d.Topology = &podresources.TopologyInfo{Nodes: []*podresources.NUMANode{{ID: node}}}
		all = append(all, d)
	}
	return all
}
