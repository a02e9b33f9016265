package metrics

import (
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/stats"
	"podrun.io/podrun/internal/sys"
)

// groups returns a pod with a container, and a pod in the host's network, with every value.
func groups() stats.Groups {
	web, host := &v1.Pod{}, &v1.Pod{}
	web.Namespace, web.Name, host.Namespace, host.Name = "default", "web-n", "default", "host-n"
	details := cgroup.Details{
		Usage: cgroup.Usage{CPU: 2500 * time.Millisecond, Memory: 1000, WorkingSet: 700, MemoryLimit: 2000, RSS: 5, PageFaults: 7, MajorPageFaults: 2, Swap: 40, SwapLimit: 100},
		User:  2 * time.Second, System: 500 * time.Millisecond,
		Quota: cgroup.Quota{Period: 100 * time.Millisecond, Limit: 50 * time.Millisecond, Shares: 102, Periods: 10, Throttled: 3, Waited: 1500 * time.Millisecond},
		Cache: 400, MappedFile: 60, Kernel: 20, Peak: 1200, LimitHits: 4, OOMKills: 1, Tasks: 9, MostTasks: 90,
		Devices: []cgroup.Device{{Number: "0:1", BytesRead: 4096, BytesWritten: 8192, Reads: 1, Writes: 2}, {Number: "0:2"}},
	}
	stalls := func(n int) *cgroup.Stalls {
		return &cgroup.Stalls{Some: cgroup.Stall{Total: time.Duration(n) * time.Second}, Full: cgroup.Stall{Total: time.Duration(n) * time.Millisecond}}
	}
	free := cgroup.Details{Usage: cgroup.Usage{Swap: -1, SwapLimit: -1}}
	link := sys.Link{Name: "eth0", RxBytes: 1, RxPackets: 2, RxErrors: 3, RxDropped: 4, TxBytes: 5, TxPackets: 6, TxErrors: 7, TxDropped: 8}
	return stats.Groups{
		Machine: sys.Usage{Since: time.Unix(500, 0), CPU: 9 * time.Second, Memory: 5000, WorkingSet: 3000, Total: 8000, SwapTotal: 90, Processors: 2},
		Links:   []sys.Link{{Name: "ens3", RxBytes: 99}}, Pressure: cgroup.Pressure{CPU: stalls(7)},
		Data:   stats.Volume{Device: "/dev/vda", FS: sys.FS{Capacity: 100, Free: 40, Files: 10, FilesFree: 3}},
		Layers: stats.Volume{Device: "/dev/vdb", FS: sys.FS{Capacity: 200}},
		All: []stats.Group{
			{
				Pod: web, Container: "c", ID: "abc", Image: "docker.io/library/app:1", Path: "/podrun/burstable/podu1/abc",
				Started: time.Unix(1000, 0), Details: details, Pressure: cgroup.Pressure{CPU: stalls(1), Memory: stalls(2), IO: stalls(3)}, Processes: 3, Disk: &pod.Space{Bytes: 10, Files: 1},
			},
			{Pod: web, Path: "/podrun/burstable/podu1", Details: details, Links: []sys.Link{link, {Name: "net1"}}},
			{Pod: host, Path: "/podrun/podu2", Details: free},
		},
	}
}

// TestContainers: names, labels and values are those that a kubelet serves at /metrics/cadvisor.
func TestContainers(t *testing.T) {
	t.Parallel()
	var failure error
	h := Containers(func() (stats.Groups, error) { return groups(), failure }, slog.New(slog.DiscardHandler))
	scrape := func() string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics/cadvisor", nil))
		if w.Code != 200 {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
		return w.Body.String()
	}
	const container = `container="c",`
	const of = `id="/podrun/burstable/podu1/abc",image="docker.io/library/app:1",`
	const named = `name="abc",namespace="default",pod="web-n"`
	const whole = `{container="",id="/podrun/burstable/podu1",image="",`
	text := scrape()
	wantLines(t, text, "container_scrape_error 0", "machine_cpu_cores 2", "machine_memory_bytes 8000", "machine_swap_bytes 90",
		`container_cpu_usage_seconds_total{`+container+`cpu="total",`+of+named+`} 2.5`,
		`container_cpu_usage_seconds_total{container="",cpu="total",id="/podrun/burstable/podu1",image="",name="",namespace="default",pod="web-n"} 2.5`,
		`container_cpu_usage_seconds_total{container="",cpu="total",id="/",image="",name="",namespace="",pod=""} 9`,
		`container_cpu_user_seconds_total{`+container+of+named+`} 2`, `container_cpu_system_seconds_total{`+container+of+named+`} 0.5`,
		`container_cpu_cfs_periods_total{`+container+of+named+`} 10`, `container_cpu_cfs_throttled_periods_total{`+container+of+named+`} 3`,
		`container_cpu_cfs_throttled_seconds_total{`+container+of+named+`} 1.5`,
		`container_memory_usage_bytes{`+container+of+named+`} 1000`, `container_memory_working_set_bytes{`+container+of+named+`} 700`,
		`container_memory_max_usage_bytes{`+container+of+named+`} 1200`, `container_memory_rss{`+container+of+named+`} 5`,
		`container_memory_cache{`+container+of+named+`} 400`, `container_memory_mapped_file{`+container+of+named+`} 60`,
		`container_memory_kernel_usage{`+container+of+named+`} 20`, `container_memory_swap{`+container+of+named+`} 40`,
		`container_memory_failcnt{`+container+of+named+`} 4`,
		`container_memory_failures_total{`+container+`failure_type="pgmajfault",`+of+named+`,scope="hierarchy"} 2`,
		`container_oom_events_total{`+container+of+named+`} 1`,
		`container_spec_cpu_shares{`+container+of+named+`} 102`, `container_spec_cpu_period{`+container+of+named+`} 100000`,
		`container_spec_cpu_quota{`+container+of+named+`} 50000`, `container_spec_memory_limit_bytes{`+container+of+named+`} 2000`,
		`container_spec_memory_swap_limit_bytes{`+container+of+named+`} 100`,
		`container_processes{`+container+of+named+`} 3`, `container_threads{`+container+of+named+`} 9`,
		`container_threads_max{`+container+of+named+`} 90`, `container_start_time_seconds{`+container+of+named+`} 1000`,
		`container_pressure_cpu_waiting_seconds_total{`+container+of+named+`} 1`, `container_pressure_cpu_stalled_seconds_total{`+container+of+named+`} 0.001`,
		`container_pressure_memory_waiting_seconds_total{`+container+of+named+`} 2`, `container_pressure_memory_stalled_seconds_total{`+container+of+named+`} 0.002`,
		`container_pressure_io_waiting_seconds_total{`+container+of+named+`} 3`, `container_pressure_io_stalled_seconds_total{`+container+of+named+`} 0.003`,
		`container_pressure_cpu_waiting_seconds_total{container="",id="/",image="",name="",namespace="",pod=""} 7`,
		`container_fs_reads_bytes_total{`+container+`device="0:1",`+of+named+`} 4096`,
		`container_fs_writes_bytes_total{`+container+`device="0:1",`+of+named+`} 8192`,
		`container_fs_reads_total{`+container+`device="0:1",`+of+named+`} 1`, `container_fs_writes_total{`+container+`device="0:1",`+of+named+`} 2`,
		`container_fs_usage_bytes{`+container+`device="/dev/vdb",`+of+named+`} 10`, `container_fs_limit_bytes{`+container+`device="/dev/vdb",`+of+named+`} 200`,
		`container_fs_usage_bytes{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 60`,
		`container_network_receive_bytes_total`+whole+`interface="eth0",name="",namespace="default",pod="web-n"} 1`,
		`container_network_receive_packets_total`+whole+`interface="eth0",name="",namespace="default",pod="web-n"} 2`,
		`container_network_receive_errors_total`+whole+`interface="eth0",name="",namespace="default",pod="web-n"} 3`,
		`container_network_receive_packets_dropped_total`+whole+`interface="eth0",name="",namespace="default",pod="web-n"} 4`,
		`container_network_transmit_bytes_total`+whole+`interface="eth0",name="",namespace="default",pod="web-n"} 5`,
		`container_network_transmit_packets_total`+whole+`interface="eth0",name="",namespace="default",pod="web-n"} 6`,
		`container_network_transmit_errors_total`+whole+`interface="eth0",name="",namespace="default",pod="web-n"} 7`,
		`container_network_transmit_packets_dropped_total`+whole+`interface="eth0",name="",namespace="default",pod="web-n"} 8`,
		`container_network_receive_bytes_total{container="",id="/",image="",interface="ens3",name="",namespace="",pod=""} 99`)
	for line := range strings.Lines(text) {
		if strings.Contains(line, `pod="host-n"`) && (strings.HasPrefix(line, "container_memory_swap{") ||
			strings.HasPrefix(line, "container_spec_cpu_quota") || strings.HasPrefix(line, "container_pressure_") || strings.HasPrefix(line, "container_network_")) {
			t.Errorf("not known, and shown: %s", line)
		}
	}
	promtool(t, text)
	// What could be read is served, and the error is seen.
	failure = errors.New("a disk hangs")
	wantLines(t, scrape(), "container_scrape_error 1", `container_processes{`+container+of+named+`} 3`)
}
