package stats

import (
	"encoding/json"
	"errors"
	"io/fs"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/sys"
)

func TestSummary(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Time{Time: began}}}
	web := v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-n", Namespace: "default", UID: "u1"},
		Spec: v1.PodSpec{Containers: []v1.Container{
			{Name: "a", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("9000")}}}, {Name: "b"}, {Name: "c"},
		}},
		Status: v1.PodStatus{StartTime: &metav1.Time{Time: began}, ContainerStatuses: []v1.ContainerStatus{
			{Name: "a", ContainerID: "containerd://ida", State: running}, {Name: "b", ContainerID: "containerd://idb", State: running},
			{Name: "c", ContainerID: "containerd://idc", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}},
		}},
	}
	done := v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "job-n", Namespace: "default", UID: "u2"}}
	// The limits of the cgroups hold, not the manifest's: a resize waits, or the container has the pod's.
	taken := map[string]cgroup.Usage{
		"/podrun/burstable/podu1":     {CPU: time.Second, Memory: 700, WorkingSet: 600, MemoryLimit: 2000, Swap: -1},
		"/podrun/burstable/podu1/ida": {CPU: time.Second, Memory: 500, WorkingSet: 400, MemoryLimit: 1000, RSS: 50, PageFaults: 5, MajorPageFaults: 1, Swap: 10, SwapLimit: 100},
	}
	s := New(Options{
		Node: "n",
		Usage: func(path string) (cgroup.Usage, error) {
			if u, ok := taken[path]; ok {
				return u, nil
			}
			return cgroup.Usage{}, fs.ErrNotExist // b has just ended
		},
		Machine: func() (sys.Usage, error) {
			return sys.Usage{Since: began, CPU: 9 * time.Second, Memory: 5000, WorkingSet: 3000, Total: 8000, Swap: 1, SwapTotal: 9, Threads: 3, MostThreads: 300}, nil
		},
	})
	at := func(now time.Time, want string) {
		t.Helper()
		got, err := s.Summary([]v1.Pod{web, done}, now)
		text, _ := json.Marshal(got)
		if err != nil || string(text) != want {
			t.Errorf("got %s, %v\nwant %s", text, err, want)
		}
	}
	now := began.Add(time.Minute)
	at(now, `{"node":{"nodeName":"n","startTime":"2026-01-02T03:04:05Z",`+
		`"cpu":{"time":"2026-01-02T03:05:05Z","usageCoreNanoSeconds":9000000000},"memory":{"time":"2026-01-02T03:05:05Z","availableBytes":5000,"usageBytes":5000,"workingSetBytes":3000},`+
		`"rlimit":{"time":"2026-01-02T03:05:05Z","maxpid":300,"curproc":3},"swap":{"time":"2026-01-02T03:05:05Z","swapAvailableBytes":8,"swapUsageBytes":1}},`+
		`"pods":[{"podRef":{"name":"web-n","namespace":"default","uid":"u1"},"startTime":"2026-01-02T03:04:05Z","containers":[{"name":"a","startTime":"2026-01-02T03:04:05Z",`+
		`"cpu":{"time":"2026-01-02T03:05:05Z","usageCoreNanoSeconds":1000000000},"memory":{"time":"2026-01-02T03:05:05Z","availableBytes":600,"usageBytes":500,"workingSetBytes":400,"rssBytes":50,"pageFaults":5,"majorPageFaults":1},`+
		`"swap":{"time":"2026-01-02T03:05:05Z","swapAvailableBytes":90,"swapUsageBytes":10}}],`+
		`"cpu":{"time":"2026-01-02T03:05:05Z","usageCoreNanoSeconds":1000000000},"memory":{"time":"2026-01-02T03:05:05Z","availableBytes":1400,"usageBytes":700,"workingSetBytes":600,"rssBytes":0,"pageFaults":0,"majorPageFaults":0}}]}`)
	// Half a CPU for ten seconds; a second call right after it returns the same rate.
	taken["/podrun/burstable/podu1/ida"] = cgroup.Usage{CPU: 6 * time.Second}
	for _, later := range []time.Duration{10 * time.Second, 10*time.Second + 50*time.Millisecond} {
		got, err := s.Summary([]v1.Pod{web}, now.Add(later))
		if err != nil || *got.Pods[0].Containers[0].CPU.UsageNanoCores != 500_000_000 || *got.Node.CPU.UsageNanoCores != 0 {
			t.Errorf("after %s: %+v, %v", later, got.Pods[0].Containers[0].CPU, err)
		}
	}
	// Samples of cgroups that are gone are forgotten.
	if _, err := s.Summary(nil, now.Add(time.Minute)); err != nil || len(s.before) != 1 {
		t.Errorf("%v, %v", s.before, err)
	}
}

func TestSummaryWithoutTheMachine(t *testing.T) {
	t.Parallel()
	s := New(Options{Machine: func() (sys.Usage, error) { return sys.Usage{}, errors.New("no /proc") }})
	if got, err := s.Summary(nil, time.Now()); err == nil || got.Node.CPU != nil || got.Pods == nil {
		t.Errorf("%+v, %v", got, err)
	}
}
