// Package stats tells what pods and the machine take of processors and memory, in the kubelet's types. It reads
// cgroups when it is asked, and remembers only what a rate needs. It limits nothing.
package stats

import (
	"maps"
	"path"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/host"
	"podrun.io/podrun/internal/ocispec"
)

// Options make Stats.
type Options struct {
	Node string
	// Usage reads what the cgroup at a path has taken.
	Usage func(path string) (cgroup.Usage, error)
	// Machine reads what the machine has taken.
	Machine func() (host.Usage, error)
}

// Stats tells what is taken. Its methods may be used at the same time.
type Stats struct {
	o  Options
	mu sync.Mutex
	// before is, by cgroup, what a rate is reckoned from.
	before map[string]sample
}

type sample struct {
	at   time.Time
	cpu  time.Duration
	rate *uint64 // thousand-millionths of a processor; nil: not known yet
}

// New returns stats that know no rates yet.
func New(o Options) *Stats { return &Stats{o: o, before: map[string]sample{}} }

// rateOver is over how long a rate is reckoned at least.
const rateOver = time.Second

// machine is what stands for the machine among cgroups.
const machine = ""

// Summary tells of the machine and of the pods that run. What cannot be read is left out; err says why the machine
// could not be.
func (s *Stats) Summary(pods []v1.Pod, now time.Time) (*kubelet.Summary, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[string]bool{machine: true}
	out := &kubelet.Summary{Node: kubelet.NodeStats{NodeName: s.o.Node}, Pods: []kubelet.PodStats{}}
	whole, err := s.o.Machine()
	if err == nil {
		out.Node.StartTime = metav1.Time{Time: whole.Since}
		out.Node.CPU, out.Node.Memory = s.taken(machine, cgroup.Usage{CPU: whole.CPU, Memory: whole.Memory, WorkingSet: whole.WorkingSet}, whole.Total, now)
	}
	for i := range pods {
		if p, ok := s.pod(&pods[i], now, seen); ok {
			out.Pods = append(out.Pods, p)
		}
	}
	maps.DeleteFunc(s.before, func(path string, _ sample) bool { return !seen[path] })
	return out, err
}

func (s *Stats) pod(p *v1.Pod, now time.Time, seen map[string]bool) (kubelet.PodStats, bool) {
	out := kubelet.PodStats{PodRef: kubelet.PodReference{Name: p.Name, Namespace: p.Namespace, UID: string(p.UID)}, Containers: []kubelet.ContainerStats{}}
	if p.Status.StartTime != nil {
		out.StartTime = *p.Status.StartTime
	}
	parent := ocispec.CgroupParent(p)
	for _, all := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, c := range all {
			if c.State.Running == nil {
				continue
			}
			_, id, _ := strings.Cut(c.ContainerID, "://")
			own := path.Join(parent, id)
			usage, err := s.o.Usage(own)
			if err != nil {
				continue // it has just ended
			}
			seen[own] = true
			one := kubelet.ContainerStats{Name: c.Name, StartTime: c.State.Running.StartedAt}
			one.CPU, one.Memory = s.taken(own, usage, limitOf(p, c.Name), now)
			out.Containers = append(out.Containers, one)
		}
	}
	if len(out.Containers) == 0 {
		return out, false
	}
	if usage, err := s.o.Usage(parent); err == nil {
		seen[parent] = true
		out.CPU, out.Memory = s.taken(parent, usage, 0, now)
	}
	return out, true
}

// limitOf is a container's limit of memory in bytes; 0: none.
func limitOf(p *v1.Pod, container string) int64 {
	for _, all := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range all {
			if all[i].Name == container {
				return all[i].Resources.Limits.Memory().Value()
			}
		}
	}
	return 0
}

// taken words a cgroup's usage; available is what there is of memory in bytes, 0 where that is not known. The caller
// holds the lock.
func (s *Stats) taken(path string, u cgroup.Usage, available int64, now time.Time) (*kubelet.CPUStats, *kubelet.MemoryStats) {
	at := metav1.Time{Time: now}
	total, used, working := uint64(u.CPU), uint64(u.Memory), uint64(u.WorkingSet)
	cpu := &kubelet.CPUStats{Time: at, UsageCoreNanoSeconds: &total}
	memory := &kubelet.MemoryStats{Time: at, UsageBytes: &used, WorkingSetBytes: &working}
	if available > 0 {
		left := uint64(max(available-u.WorkingSet, 0))
		memory.AvailableBytes = &left
	}
	before, known := s.before[path]
	over := now.Sub(before.at)
	switch {
	case !known || u.CPU < before.cpu:
		s.before[path] = sample{at: now, cpu: u.CPU}
		return cpu, memory // no rate yet
	case over >= rateOver:
		rate := uint64(float64(u.CPU-before.cpu) / over.Seconds())
		before = sample{at: now, cpu: u.CPU, rate: &rate}
		s.before[path] = before
	}
	cpu.UsageNanoCores = before.rate
	return cpu, memory
}
