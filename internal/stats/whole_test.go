package stats

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/stats/disk"
	"podrun.io/podrun/internal/sys"
)

// world is the data source of Stats in the tests.
type world struct {
	measured int
	usage    disk.Usage
	err      error
	pids     []int
	links    []sys.Link
	pressure map[string]cgroup.Pressure // by path; "": of the machine
}

func (w *world) options() Options {
	fs := map[string]sys.FS{
		"/data": {Capacity: 1000, Free: 400, Available: 300, Files: 50, FilesFree: 20}, "/logs": {Capacity: 2000}, "/root": {Capacity: 3000}, "/v": {Capacity: 4000},
	}
	return Options{
		Usage:     func(string) (cgroup.Usage, error) { return cgroup.Usage{}, nil },
		Machine:   func() (sys.Usage, error) { return sys.Usage{}, nil },
		Processes: func(string) ([]int, error) { return w.pids, nil },
		Pressure:  func(path string) cgroup.Pressure { return w.pressure[path] },
		Network:   func(*v1.Pod) string { return "/net" },
		Links: func(netns string) ([]sys.Link, error) {
			if netns == "" {
				return []sys.Link{{Name: "ens3", RxBytes: 9}, {Name: "ens4", RxBytes: 7}}, nil
			}
			return w.links, nil
		},
		Disks: &Disks{
			Usage:  func(context.Context, *v1.Pod) (disk.Usage, error) { w.measured++; return w.usage, w.err },
			Dir:    func(*v1.Pod, *v1.Volume) string { return "/v" },
			Size:   func(context.Context, string) (pod.Space, error) { return pod.Space{Bytes: 80, Files: 8}, nil },
			Images: func(context.Context) (pod.Space, error) { return pod.Space{Bytes: 70, Files: 7}, nil },
			FS: func(path string) (sys.FS, error) {
				if f, ok := fs[path]; ok {
					return f, nil
				}
				return sys.FS{}, errors.New("asked about " + path)
			},
			Data: "/data", Logs: "/logs", Root: "/root",
		},
	}
}

// stored returns a running pod with volumes of several kinds.
func stored() v1.Pod {
	p := v1.Pod{}
	p.Namespace, p.Name, p.UID = "default", "web-n", "u1"
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "a", ContainerID: "containerd://ida", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
	p.Spec.Containers = []v1.Container{{Name: "a"}}
	p.Spec.Volumes = []v1.Volume{
		{Name: "e", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "c", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
		{Name: "h", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}},
	}
	return p
}

// TestNegativeStats: what a driver has not measured, and says by a negative number, is left out.
func TestNegativeStats(t *testing.T) {
	t.Parallel()
	o := (&world{}).options()
	minus := int64(-1)
	o.Disks.Driver = func(context.Context, pod.UID, string) (sys.FS, pod.Space, error) {
		return sys.FS{Capacity: 5, Available: uint64(minus), Files: uint64(minus)}, pod.Space{Bytes: 3, Files: minus}, nil
	}
	got, err := New(o).Whole(t.Context(), []v1.Pod{stored()}, time.Now())
	if err != nil || len(got.Pods) != 1 || len(got.Pods[0].VolumeStats) == 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, s := range got.Pods[0].VolumeStats {
		if s.AvailableBytes != nil || s.Inodes != nil || s.InodesUsed != nil {
			t.Errorf("%s: negative values are there: %+v", s.Name, s)
		}
		if s.CapacityBytes == nil || *s.CapacityBytes != 5 || s.UsedBytes == nil || *s.UsedBytes != 3 || s.InodesFree == nil {
			t.Errorf("%s: values are missing: %+v", s.Name, s)
		}
	}
}

func TestWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{pids: []int{5, 6}, links: []sys.Link{{Name: "eth0", RxBytes: 1, RxErrors: 2, TxBytes: 3, TxErrors: 4}, {Name: "net1", RxBytes: 99}}, usage: disk.Usage{
			Roots: map[string]pod.Space{"a": {Bytes: 10, Files: 1}}, Logs: map[string]pod.Space{"a": {Bytes: 20, Files: 2}},
			Volumes: map[string]pod.Space{"e": {Bytes: 40, Files: 4}},
			Etc:     pod.Space{Bytes: 5, Files: 3},
		}}
		s := New(w.options())
		pods := []v1.Pod{stored()}
		look := func() *kubelet.Summary {
			t.Helper()
			got, err := s.Whole(t.Context(), pods, time.Now())
			if err != nil || len(got.Pods) != 1 {
				t.Fatalf("%+v, %v", got, err)
			}
			return got
		}
		got := look()
		is := func(what string, fs *kubelet.FsStats, capacity, used, files uint64) {
			t.Helper()
			if fs == nil || *fs.CapacityBytes != capacity || *fs.UsedBytes != used || *fs.InodesUsed != files {
				t.Errorf("%s: %+v", what, fs)
			}
		}
		p := got.Pods[0]
		is("node", got.Node.Fs, 1000, 600, 30)
		is("images", got.Node.Runtime.ImageFs, 3000, 70, 7)
		is("containers", got.Node.Runtime.ContainerFs, 3000, 10, 1)
		is("root", p.Containers[0].Rootfs, 3000, 10, 1)
		is("logs", p.Containers[0].Logs, 2000, 20, 2)
		is("pod", p.EphemeralStorage, 1000, 75, 10) // the claim is no part of it
		if len(p.VolumeStats) != 2 || p.VolumeStats[0].PVCRef != nil || *p.VolumeStats[1].PVCRef != (kubelet.PVCReference{Name: "data", Namespace: "default"}) {
			t.Fatalf("volumes %+v", p.VolumeStats)
		}
		is("volume e", &p.VolumeStats[0].FsStats, 4000, 40, 4)
		is("volume c", &p.VolumeStats[1].FsStats, 4000, 80, 8)
		if n := p.Network; n == nil || n.Name != "eth0" || *n.RxBytes != 1 || *n.RxErrors != 2 || *n.TxBytes != 3 || *n.TxErrors != 4 || len(n.Interfaces) != 2 {
			t.Errorf("network %+v", n)
		}
		if n := got.Node.Network; n == nil || n.Name != "ens3" || len(n.Interfaces) != 2 {
			t.Errorf("the machine's network %+v", n)
		}
		if *p.ProcessStats.ProcessCount != 2 {
			t.Errorf("%d processes", *p.ProcessStats.ProcessCount)
		}
		// A measurement is reused for a while, and a later one that fails keeps the parts that
		// could be measured.
		time.Sleep(measuredFor / 2)
		if look(); w.measured != 1 {
			t.Errorf("measured %d times", w.measured)
		}
		time.Sleep(measuredFor)
		w.usage.Roots["a"], w.err = pod.Space{Bytes: 11, Files: 1}, errors.New("a volume cannot be read")
		got, err := s.Whole(t.Context(), pods, time.Now())
		if !errors.Is(err, w.err) || w.measured != 2 {
			t.Errorf("%v after %d measurements", err, w.measured)
		}
		is("root, later", got.Pods[0].Containers[0].Rootfs, 3000, 11, 1)
	})
}

// TestWithoutItsOwnNetwork: neither the machine's network nor that of another process is reported
// as a pod's.
func TestWithoutItsOwnNetwork(t *testing.T) {
	t.Parallel()
	of := func(p v1.Pod, o Options) *kubelet.NetworkStats {
		t.Helper()
		got, err := New(o).Whole(t.Context(), []v1.Pod{p}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return got.Pods[0].Network
	}
	w := &world{pids: []int{5}, links: []sys.Link{{Name: "eth0"}}}
	p := stored()
	if of(p, w.options()) == nil {
		t.Error("none of its own")
	}
	p.Spec.HostNetwork = true
	if n := of(p, w.options()); n != nil {
		t.Errorf("%+v", n)
	}
	o := w.options()
	o.Network = func(*v1.Pod) string { return "" } // it ends while it is looked at
	if n := of(stored(), o); n != nil {
		t.Errorf("%+v", n)
	}
}

// TestPressureStalls: the pressure on the machine, a pod and its container is each where the kubelet has it, in nanoseconds;
// where the kernel says nothing, there is nothing.
func TestPressureStalls(t *testing.T) {
	t.Parallel()
	of := func(n int) cgroup.Pressure {
		one := func(n int) *cgroup.Stalls {
			some := cgroup.Stall{Total: time.Duration(n) * time.Microsecond, Avg10: 1, Avg60: 2, Avg300: 3}
			return &cgroup.Stalls{Some: some, Full: cgroup.Stall{Total: time.Duration(n + 100)}}
		}
		return cgroup.Pressure{CPU: one(n), Memory: one(n + 1), IO: one(n + 2)}
	}
	w := &world{pids: []int{5}, pressure: map[string]cgroup.Pressure{
		"": of(10), "/podrun/besteffort/podu1": of(20), "/podrun/besteffort/podu1/ida": of(30),
	}}
	got, err := New(w.options()).Whole(t.Context(), []v1.Pod{stored()}, time.Now())
	if err != nil || len(got.Pods) != 1 || len(got.Pods[0].Containers) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	p := got.Pods[0]
	check := func(what string, cpu *kubelet.CPUStats, memory *kubelet.MemoryStats, io *kubelet.IOStats, n uint64) {
		t.Helper()
		for i, psi := range []*kubelet.PSIStats{cpu.PSI, memory.PSI, io.PSI} {
			want := kubelet.PSIStats{Full: kubelet.PSIData{Total: n + uint64(i) + 100}, Some: kubelet.PSIData{Total: (n + uint64(i)) * 1000, Avg10: 1, Avg60: 2, Avg300: 3}}
			if psi == nil || *psi != want {
				t.Errorf("%s: %+v, want %+v", what, psi, want)
			}
		}
	}
	check("machine", got.Node.CPU, got.Node.Memory, got.Node.IO, 10)
	check("pod", p.CPU, p.Memory, p.IO, 20)
	check("container", p.Containers[0].CPU, p.Containers[0].Memory, p.Containers[0].IO, 30)
	groups := Groups{All: []Group{{Path: "/podrun/besteffort/podu1/ida"}, {Path: "/podrun/besteffort/podu1"}}}
	New(w.options()).AddPressure(&groups)
	for i, all := range []cgroup.Pressure{groups.Pressure, groups.All[1].Pressure, groups.All[0].Pressure} {
		if want := time.Duration(10+10*i) * time.Microsecond; all.CPU == nil || all.CPU.Some.Total != want {
			t.Errorf("group %d: %+v, want %v", i, all.CPU, want)
		}
	}
	w.pressure = nil
	if got, err = New(w.options()).Whole(t.Context(), []v1.Pod{stored()}, time.Now()); err != nil || got.Node.IO != nil || got.Node.CPU.PSI != nil || got.Pods[0].Containers[0].IO != nil {
		t.Errorf("without: %+v, %v", got, err)
	}
}
