package stats

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/stats/disk"
	"podrun.io/podrun/internal/sys"
)

// Driver asks the CSI driver of a pod's volume how large that is and how much of it is in use.
type Driver func(ctx context.Context, uid pod.UID, volume string) (fs sys.FS, used pod.Space, err error)

// Disks are the functions and paths from which disk usage is read.
type Disks struct {
	// Usage measures the parts of a pod that podrun stores, without claims. Parts that cannot be measured are
	// missing in the result, and the error says why.
	Usage func(ctx context.Context, p *v1.Pod) (disk.Usage, error)
	// Dir returns the directory of a volume; "" if podrun does not store it.
	Dir func(p *v1.Pod, v *v1.Volume) string
	// Size measures the directory of a claim.
	Size func(ctx context.Context, dir string) (pod.Space, error)
	// Driver may be nil.
	Driver Driver
	// Images measures the layers of images.
	Images func(ctx context.Context) (pod.Space, error)
	// FS returns the capacity and usage of the file system of a path.
	FS func(path string) (sys.FS, error)
	// Device returns the block device of the file system of a path; "" if there is none.
	Device func(path string) string
	// Data is the directory of pods' data, Logs that of their logs, and Root that of the files of
	// images and containers.
	Data, Logs, Root string
}

const (
	// measuredFor is how long a measurement is reused, because the cost of one grows with the size
	// of the pods' data.
	measuredFor = 10 * time.Second
	// scrapedFor is how long one is reused for scrapes, which come again and again.
	scrapedFor = time.Minute
	// measuringTime is how long a request waits for measurements; later ones are part of the next
	// response.
	measuringTime = 5 * time.Second
	// drivingTime is how long it waits for the drivers of a pod's volumes.
	drivingTime = time.Second
)

// storage caches measurements.
type storage struct {
	Disks
	mu     sync.Mutex // held while measuring, so that concurrent requests cause one measurement
	pods   map[pod.UID]measured
	images measured
	walks  map[string]*walk // the measurements of claims that have not ended, by directory
}

type measured struct {
	at    time.Time // zero: never, then usage and driven are not known
	tried time.Time // when the last attempt to measure it ended, in time or not
	usage disk.Usage
	used  pod.Space
	// driven are the volumes that CSI drivers have measured, and claims those that podrun has.
	driven, claims map[string]wholeVolume
}

// wholeVolume is a volume that is measured with its file system.
type wholeVolume struct {
	fs   sys.FS
	used pod.Space
	at   time.Time
}

// measure refreshes the cached measurements that are older than age, and drops those of pods that are not in pods. It
// begins with the pods that it has not come to for the longest time: one that is too large to be measured in time keeps
// the others waiting once. What is not measured in time keeps its former measurement, if it has one.
func (s *storage) measure(ctx context.Context, pods []v1.Pod, age time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, measuringTime)
	defer cancel()
	failed := []error{s.measureImages(ctx, age)}
	now := map[pod.UID]measured{}
	claims := map[pod.UID]map[string]*walk{}
	maps.DeleteFunc(s.walks, func(_ string, w *walk) bool { return w.hasEnded() })
	var due []*v1.Pod
	for i := range pods {
		p := &pods[i]
		m := s.pods[p.UID]
		if now[p.UID] = m; time.Since(m.at) >= age {
			due, claims[p.UID] = append(due, p), s.walk(ctx, p)
		}
	}
	slices.SortStableFunc(due, func(a, b *v1.Pod) int { return now[a.UID].tried.Compare(now[b.UID].tried) })
	for _, p := range due {
		if ctx.Err() != nil {
			break
		}
		used, err := s.Usage(ctx, p)
		failed = append(failed, err)
		m, at := now[p.UID], time.Now()
		if ctx.Err() == nil { // else parts are missing
			m = measured{at: at, usage: used, driven: s.drive(ctx, p)}
		}
		m.tried = at
		now[p.UID] = m
	}
	for uid, walks := range claims { // last: nothing else waits for a file system that does not answer
		m := now[uid]
		var err error
		m.claims, err = ended(ctx, walks, s.pods[uid].claims)
		now[uid], failed = m, append(failed, err)
	}
	s.pods = now
	return errors.Join(failed...)
}

// measureImages refreshes the measurement of the images if it is older than age. Half of the time is for pods.
func (s *storage) measureImages(ctx context.Context, age time.Duration) error {
	if time.Since(s.images.at) < age {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, measuringTime/2)
	defer cancel()
	used, err := s.Images(ctx)
	if err == nil {
		s.images = measured{at: time.Now(), used: used}
	}
	return err
}

// drive asks the CSI drivers of a pod's volumes. What they do not say is left out.
func (s *storage) drive(ctx context.Context, p *v1.Pod) map[string]wholeVolume {
	ctx, cancel := context.WithTimeout(ctx, drivingTime)
	defer cancel()
	var all map[string]wholeVolume
	for _, v := range p.Spec.Volumes {
		if v.CSI == nil && v.PersistentVolumeClaim == nil || s.Driver == nil {
			continue
		}
		if fs, used, err := s.Driver(ctx, p.UID, v.Name); err == nil {
			if all == nil {
				all = map[string]wholeVolume{}
			}
			all[v.Name] = wholeVolume{fs, used, time.Now()}
		}
	}
	return all
}

// add adds the file systems' stats to out. What cannot be read is left out, and the error says why.
func (s *storage) add(ctx context.Context, pods []v1.Pod, out *kubelet.Summary) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.measure(ctx, pods, measuredFor)
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
			if m.at.IsZero() {
				break
			}
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
		if !m.at.IsZero() {
			p.EphemeralStorage = of(data, m.at, total)
		}
	}
	out.Node.Runtime = &kubelet.RuntimeStats{ImageFs: images, ContainerFs: containers}
	return err
}

// volumes adds the stats of the volumes that podrun stores, and returns the part of them that
// counts as the pod's ephemeral storage.
func (s *storage) volumes(p *v1.Pod, m measured, out *kubelet.PodStats) pod.Space {
	var ephemeral pod.Space
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		by, is := m.driven[v.Name]
		if !is {
			by, is = m.claims[v.Name]
		}
		if is {
			one := kubelet.VolumeStats{Name: v.Name, FsStats: *of(by.fs, by.at, by.used), PVCRef: claimOf(p, v)}
			leaveOutNegative(&one.FsStats)
			out.VolumeStats = append(out.VolumeStats, one)
			continue
		}
		used, known := m.usage.Volumes[v.Name]
		if !known {
			continue
		}
		fs, err := s.FS(s.Dir(p, v))
		if err != nil {
			continue // the volume was just removed
		}
		one := kubelet.VolumeStats{Name: v.Name, FsStats: *of(fs, m.at, used)}
		if pod.Counts(v) {
			ephemeral = ephemeral.Add(used)
		}
		out.VolumeStats = append(out.VolumeStats, one)
	}
	return ephemeral
}

// claimOf returns the claim of a volume; nil if it has none.
func claimOf(p *v1.Pod, v *v1.Volume) *kubelet.PVCReference {
	if v.PersistentVolumeClaim == nil {
		return nil
	}
	return &kubelet.PVCReference{Name: v.PersistentVolumeClaim.ClaimName, Namespace: p.Namespace}
}

// of returns the stats of a file system with the given usage, in the kubelet's form.
func of(fs sys.FS, at time.Time, used pod.Space) *kubelet.FsStats {
	return &kubelet.FsStats{
		Time:           metav1.Time{Time: at},
		AvailableBytes: new(fs.Available), CapacityBytes: new(fs.Capacity), UsedBytes: new(uint64(used.Bytes)),
		InodesFree: new(fs.FilesFree), Inodes: new(fs.Files), InodesUsed: new(uint64(used.Files)),
	}
}

// leaveOutNegative leaves out what a driver has given as a negative number, which is one of the largest ones here.
func leaveOutNegative(s *kubelet.FsStats) {
	for _, v := range []**uint64{
		&s.AvailableBytes, &s.CapacityBytes, &s.UsedBytes, &s.InodesFree, &s.Inodes, &s.InodesUsed,
	} {
		if int64(**v) < 0 {
			*v = nil
		}
	}
}

// whole returns the stats of a file system with the usage of all that is on it.
func whole(fs sys.FS, at time.Time) *kubelet.FsStats {
	return of(fs, at, pod.Space{Bytes: int64(fs.Capacity - fs.Free), Files: int64(fs.Files - fs.FilesFree)})
}
