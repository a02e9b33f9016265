// Package stats reports the resource usage of pods and of the machine, in the kubelet's types: CPU
// and memory from cgroups and, only on request, disks and networks. It keeps the samples from which
// CPU rates are computed, and caches disk measurements for some seconds.
//
// The package enforces no limit. Begin reading at [Stats].
package stats

import (
	"context"
	"errors"
	"maps"
	"path"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/oci"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// Options are the data sources of Stats.
type Options struct {
	Node string
	// Usage reads the usage of the cgroup at a path.
	Usage func(path string) (cgroup.Usage, error)
	// Details reads the usage and the limits of the cgroup at a path.
	Details func(path string) (cgroup.Details, error)
	// Pressure reads the pressure on the cgroup at a path; an empty path means the machine.
	Pressure func(path string) cgroup.Pressure
	// Machine reads the usage of the machine.
	Machine func() (sys.Usage, error)
	// Processes returns the PIDs in the cgroup at a path. Links returns the interfaces in the network namespace at a
	// path; an empty path means the machine's.
	Processes func(path string) ([]int, error)
	Links     func(netns string) ([]sys.Link, error)
	// Network returns the path of a pod's network namespace; "" if it has none of its own, or none any more. Processes
	// of the pod do not show it: they may make another one, with interfaces of their own invention.
	Network func(*v1.Pod) string
	// Disks is nil if disk usage is not available.
	Disks *Disks
}

// Stats computes usage statistics. Its methods may be called concurrently.
type Stats struct {
	o  Options
	mu sync.Mutex
	// before holds, by cgroup path, the sample from which the CPU rate is computed.
	before map[string]sample
	disks  *storage // nil: not available
}

type sample struct {
	at   time.Time
	cpu  time.Duration
	rate *uint64 // nanocores; nil: not known yet
}

// New returns Stats without any samples, so that the first result has no CPU rates.
func New(o Options) *Stats {
	s := &Stats{o: o, before: map[string]sample{}}
	if o.Disks != nil {
		s.disks = &storage{Disks: *o.Disks, pods: map[pod.UID]measured{}, walks: map[string]*walk{}}
	}
	return s
}

// rateOver is the shortest time over which a rate is computed.
const rateOver = time.Second

// machine is the key of the machine's sample among those of cgroups.
const machine = ""

// Whole returns Summary with the pressure, disk usage, network traffic and number of processes of pods
// in addition. What cannot be measured is left out, and the error says why.
func (s *Stats) Whole(ctx context.Context, pods []v1.Pod, now time.Time) (*kubelet.Summary, error) {
	out, err := s.Summary(pods, now)
	if links, linksErr := s.o.Links(""); linksErr == nil {
		out.Node.Network = network(links, now)
	} else {
		err = errors.Join(err, linksErr)
	}
	out.Node.IO = s.pressure(machine, out.Node.CPU, out.Node.Memory, now)
	for i := range pods {
		for j := range out.Pods {
			if out.Pods[j].PodRef.UID == string(pods[i].UID) {
				s.inside(&pods[i], running(&pods[i]), now, &out.Pods[j])
			}
		}
	}
	if s.disks == nil {
		return out, err
	}
	return out, errors.Join(err, s.disks.add(ctx, pods, out))
}

// running returns, for each running container of p by its name, the paths at which its cgroup may be.
func running(p *v1.Pod) map[string][]string {
	out := map[string][]string{}
	for _, all := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, c := range all {
			if c.State.Running != nil {
				_, id, _ := strings.Cut(c.ContainerID, "://")
				out[c.Name] = oci.CgroupsOfContainer(p, id)
			}
		}
	}
	return out
}

// Summary returns the CPU and memory usage of the machine and of the running pods. What cannot be
// read is left out; the error says why the machine's usage could not be read.
func (s *Stats) Summary(pods []v1.Pod, now time.Time) (*kubelet.Summary, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[string]bool{machine: true}
	out := &kubelet.Summary{Node: kubelet.NodeStats{NodeName: s.o.Node}, Pods: []kubelet.PodStats{}}
	whole, err := s.o.Machine()
	if err == nil {
		out.Node.StartTime = metav1.Time{Time: whole.Since}
		out.Node.CPU, out.Node.Memory = s.usage(machine, cgroup.Usage{
			CPU: whole.CPU, Memory: whole.Memory, WorkingSet: whole.WorkingSet,
		}, whole.Total, now)
		// These are not known of the machine.
		out.Node.Memory.RSSBytes, out.Node.Memory.PageFaults, out.Node.Memory.MajorPageFaults = nil, nil, nil
		out.Node.Swap = swap(whole.Swap, whole.SwapTotal, now)
		if whole.Threads > 0 {
			out.Node.Rlimit = &kubelet.RlimitStats{
				Time: metav1.Time{Time: now}, NumOfRunningProcesses: &whole.Threads, MaxPID: &whole.MostThreads,
			}
		}
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
	out := kubelet.PodStats{
		PodRef:     kubelet.PodReference{Name: p.Name, Namespace: p.Namespace, UID: string(p.UID)},
		Containers: []kubelet.ContainerStats{},
	}
	if p.Status.StartTime != nil {
		out.StartTime = *p.Status.StartTime
	}
	parent := ""
	for _, all := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, c := range all {
			if c.State.Running == nil {
				continue
			}
			_, id, _ := strings.Cut(c.ContainerID, "://")
			own, usage, err := cgroup.First(s.o.Usage, oci.CgroupsOfContainer(p, id))
			if err != nil {
				continue // the container has just exited
			}
			seen[own], parent = true, path.Dir(own)
			one := kubelet.ContainerStats{Name: c.Name, StartTime: c.State.Running.StartedAt}
			one.CPU, one.Memory = s.usage(own, usage, usage.MemoryLimit, now)
			one.Swap = swap(usage.Swap, usage.SwapLimit, now)
			out.Containers = append(out.Containers, one)
		}
	}
	if len(out.Containers) == 0 {
		return out, false
	}
	if usage, err := s.o.Usage(parent); err == nil {
		seen[parent] = true
		out.CPU, out.Memory = s.usage(parent, usage, usage.MemoryLimit, now)
		out.Swap = swap(usage.Swap, usage.SwapLimit, now)
	}
	return out, true
}

// swap returns the swap usage in the kubelet's form; nil if it is not accounted. A negative limit
// means no limit.
func swap(used, limit int64, now time.Time) *kubelet.SwapStats {
	if used < 0 {
		return nil
	}
	out := &kubelet.SwapStats{Time: metav1.Time{Time: now}, SwapUsageBytes: new(uint64(used))}
	if limit >= 0 {
		out.SwapAvailableBytes = new(uint64(max(limit-used, 0)))
	}
	return out
}

// usage returns a cgroup's usage in the kubelet's form. limit is its memory limit in bytes; 0: none.
// The caller holds the lock.
func (s *Stats) usage(
	path string, u cgroup.Usage, limit int64, now time.Time,
) (*kubelet.CPUStats, *kubelet.MemoryStats) {
	at := metav1.Time{Time: now}
	total, used, working := uint64(u.CPU), uint64(u.Memory), uint64(u.WorkingSet)
	cpu := &kubelet.CPUStats{Time: at, UsageCoreNanoSeconds: &total}
	memory := &kubelet.MemoryStats{
		Time: at, UsageBytes: &used, WorkingSetBytes: &working, RSSBytes: new(uint64(u.RSS)),
		PageFaults: new(uint64(u.PageFaults)), MajorPageFaults: new(uint64(u.MajorPageFaults)),
	}
	if limit > 0 {
		left := uint64(max(limit-u.WorkingSet, 0))
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
