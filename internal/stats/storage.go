package stats

import (
	"context"
	"errors"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/stats/disk"
	"podrun.io/podrun/internal/sys"
)

// Disks are what is asked about disks.
type Disks struct {
	// Usage measures what is podrun's of a pod; what it could not measure is left out, beside an error.
	Usage func(ctx context.Context, p *v1.Pod) (disk.Usage, error)
	// Dir is where a volume is; "": podrun does not keep it.
	Dir func(p *v1.Pod, v *v1.Volume) string
	// Images measures the layers of images.
	Images func(ctx context.Context) (pod.Space, error)
	// FS looks at the file system of a path.
	FS func(path string) (sys.FS, error)
	// Data has pods' data, Logs their logs, Root the files of images and containers.
	Data, Logs, Root string
}

const (
	// measuredFor is how long it holds what was measured: it takes as long as what pods have is large.
	measuredFor = 10 * time.Second
	// measuringTime is how long an answer waits for what is measured; what comes later is told with the next.
	measuringTime = 5 * time.Second
)

// storage remembers what was measured.
type storage struct {
	Disks
	mu     sync.Mutex // held while it is measured, so that one measures however many ask
	pods   map[pod.UID]measured
	images measured
}

type measured struct {
	at    time.Time
	usage disk.Usage
	used  pod.Space
}

// measure brings what is known up to date, and forgets pods that are not among these.
func (s *storage) measure(ctx context.Context, pods []v1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, measuringTime)
	defer cancel()
	var failed []error
	now := map[pod.UID]measured{}
	for i := range pods {
		p := &pods[i]
		m, known := s.pods[p.UID]
		if !known || time.Since(m.at) >= measuredFor {
			taken, err := s.Usage(ctx, p)
			if err != nil {
				failed = append(failed, err)
			}
			if ctx.Err() == nil || !known { // else it is less whole than what was measured before
				m = measured{at: time.Now(), usage: taken}
			}
		}
		now[p.UID] = m
	}
	s.pods = now
	if time.Since(s.images.at) >= measuredFor {
		used, err := s.Images(ctx)
		if err != nil {
			return errors.Join(append(failed, err)...)
		}
		s.images = measured{at: time.Now(), used: used}
	}
	return errors.Join(failed...)
}

// add tells of file systems. Of what cannot be read nothing is said; the error says why.
func (s *storage) add(ctx context.Context, pods []v1.Pod, out *kubelet.Summary) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.measure(ctx, pods)
	at := time.Now()
	data, nodeErr := s.FS(s.Data)
	logs, logsErr := s.FS(s.Logs)
	root, rootErr := s.FS(s.Root)
	if err := errors.Join(nodeErr, logsErr, rootErr); err != nil {
		return err
	}
	out.Node.Fs = whole(data, at)
	images, containers := of(root, s.images.at, s.images.used), of(root, at, pod.Space{})
	for i := range out.Pods {
		p := &out.Pods[i]
		m := s.pods[pod.UID(p.PodRef.UID)]
		total := m.usage.Etc
		for j := range p.Containers {
			c := &p.Containers[j]
			used := m.usage.Roots[c.Name]
			c.Rootfs = of(root, m.at, used)
			*containers.UsedBytes += uint64(used.Bytes)
			*containers.InodesUsed += uint64(used.Files)
			c.Logs = of(logs, m.at, m.usage.Logs[c.Name])
			total = total.Add(used).Add(m.usage.Logs[c.Name])
		}
		for j := range pods {
			if string(pods[j].UID) == p.PodRef.UID {
				total = total.Add(s.volumes(&pods[j], m, p))
			}
		}
		p.EphemeralStorage = of(data, m.at, total)
	}
	out.Node.Runtime = &kubelet.RuntimeStats{ImageFs: images, ContainerFs: containers}
	return err
}

// volumes tells of those that podrun keeps, and returns what of the machine's disk goes with the pod.
func (s *storage) volumes(p *v1.Pod, m measured, out *kubelet.PodStats) pod.Space {
	var ephemeral pod.Space
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		used, known := m.usage.Volumes[v.Name]
		if !known {
			continue
		}
		fs, err := s.FS(s.Dir(p, v))
		if err != nil {
			continue // it has just gone
		}
		one := kubelet.VolumeStats{Name: v.Name, FsStats: *of(fs, m.at, used)}
		if claim := v.PersistentVolumeClaim; claim != nil {
			one.PVCRef = &kubelet.PVCReference{Name: claim.ClaimName, Namespace: p.Namespace}
		}
		if pod.OnDisk(v) || v.ConfigMap != nil {
			ephemeral = ephemeral.Add(used)
		}
		out.VolumeStats = append(out.VolumeStats, one)
	}
	return ephemeral
}

// of words what is used of a file system.
func of(fs sys.FS, at time.Time, used pod.Space) *kubelet.FsStats {
	return &kubelet.FsStats{
		Time: metav1.Time{Time: at}, AvailableBytes: new(fs.Available), CapacityBytes: new(fs.Capacity), UsedBytes: new(uint64(used.Bytes)),
		InodesFree: new(fs.FilesFree), Inodes: new(fs.Files), InodesUsed: new(uint64(used.Files)),
	}
}

// whole words how full a file system is.
func whole(fs sys.FS, at time.Time) *kubelet.FsStats {
	return of(fs, at, pod.Space{Bytes: int64(fs.Capacity - fs.Free), Files: int64(fs.Files - fs.FilesFree)})
}
