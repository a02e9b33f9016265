package metrics

import (
	"errors"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

func TestResource(t *testing.T) {
	nanos, bytes := uint64(2_500_000_000), uint64(4096)
	at := metav1.Time{Time: time.Unix(1000, 0)}
	cpu, memory := &kubelet.CPUStats{Time: at, UsageCoreNanoSeconds: &nanos}, &kubelet.MemoryStats{Time: at, WorkingSetBytes: &bytes}
	used, left := uint64(100), uint64(900)
	swap := &kubelet.SwapStats{Time: at, SwapUsageBytes: &used, SwapAvailableBytes: &left}
	var failure error
	summary := func() (*kubelet.Summary, error) {
		return &kubelet.Summary{Node: kubelet.NodeStats{CPU: cpu, Memory: memory, Swap: swap}, Pods: []kubelet.PodStats{{
			PodRef: kubelet.PodReference{Name: "web-n", Namespace: "default"}, CPU: cpu, Memory: memory, Swap: swap,
			Containers: []kubelet.ContainerStats{{Name: "c", StartTime: metav1.Time{Time: time.Unix(900, 0)}, CPU: cpu, Memory: memory, Swap: swap}},
		}}}, failure
	}
	scrape := func() string {
		w := httptest.NewRecorder()
		Resource(summary, slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest("GET", "/metrics/resource", nil))
		return w.Body.String()
	}
	wantLines(t, scrape(), "resource_scrape_error 0",
		`container_cpu_usage_seconds_total{container="c",namespace="default",pod="web-n"} 2.5 1000000`,
		`container_memory_working_set_bytes{container="c",namespace="default",pod="web-n"} 4096 1000000`,
		`container_start_time_seconds{container="c",namespace="default",pod="web-n"} 900`,
		`pod_cpu_usage_seconds_total{namespace="default",pod="web-n"} 2.5 1000000`, `pod_memory_working_set_bytes{namespace="default",pod="web-n"} 4096 1000000`,
		`node_cpu_usage_seconds_total 2.5 1000000`, `node_memory_working_set_bytes 4096 1000000`,
		`container_swap_usage_bytes{container="c",namespace="default",pod="web-n"} 100 1000000`, `container_swap_limit_bytes{container="c",namespace="default",pod="web-n"} 1000 1000000`,
		`pod_swap_usage_bytes{namespace="default",pod="web-n"} 100 1000000`, `node_swap_usage_bytes 100 1000000`)
	failure = errors.New("no /proc")
	wantLines(t, scrape(), "resource_scrape_error 1", `pod_memory_working_set_bytes{namespace="default",pod="web-n"} 4096 1000000`)
}
