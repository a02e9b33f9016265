package metrics

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Resource returns a handler of the resource usage of pods and of the machine, under the metric
// names of the kubelet's /metrics/resource.
func Resource(summary func() (*kubelet.Summary, error), log *slog.Logger) http.Handler {
	r := prometheus.NewRegistry()
	described := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	of := []string{"container", "namespace", "pod"}
	r.MustRegister(&resource{
		summary: summary, log: log,
		failed: described("resource_scrape_error", "1 if not everything could be read, else 0."),
		cpu: described("container_cpu_usage_seconds_total",
			"CPU time of a container, in core-seconds.", of...),
		memory: described("container_memory_working_set_bytes", "Working set of a container.", of...),
		started: described("container_start_time_seconds",
			"When a container started, in seconds since the epoch.", of...),
		podCPU:     described("pod_cpu_usage_seconds_total", "CPU time of a pod, in core-seconds.", of[1:]...),
		podMemory:  described("pod_memory_working_set_bytes", "Working set of a pod.", of[1:]...),
		swap:       described("container_swap_usage_bytes", "Swap usage of a container.", of...),
		swapLimit:  described("container_swap_limit_bytes", "Swap limit of a container.", of...),
		podSwap:    described("pod_swap_usage_bytes", "Swap usage of a pod.", of[1:]...),
		nodeSwap:   described("node_swap_usage_bytes", "Swap usage of the machine."),
		nodeCPU:    described("node_cpu_usage_seconds_total", "CPU time of the machine, in core-seconds."),
		nodeMemory: described("node_memory_working_set_bytes", "Working set of the machine."),
	})
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)})
}

// resource is the collector that reads a summary at each scrape.
type resource struct {
	summary                                                              func() (*kubelet.Summary, error)
	log                                                                  *slog.Logger
	failed, cpu, memory, started, podCPU, podMemory, nodeCPU, nodeMemory *prometheus.Desc
	swap, swapLimit, podSwap, nodeSwap                                   *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (r *resource) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		r.failed, r.cpu, r.memory, r.started, r.podCPU, r.podMemory, r.nodeCPU, r.nodeMemory,
		r.swap, r.swapLimit, r.podSwap, r.nodeSwap,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (r *resource) Collect(out chan<- prometheus.Metric) {
	all, err := r.summary()
	failed := 0.0
	if err != nil {
		failed = 1
		r.log.Debug("resource usage could not be read completely", "err", err)
	}
	out <- prometheus.MustNewConstMetric(r.failed, prometheus.GaugeValue, failed)
	if all == nil {
		return
	}
	taken := func(c *kubelet.CPUStats, m *kubelet.MemoryStats, cpu, memory *prometheus.Desc, labels ...string) {
		if c != nil && c.UsageCoreNanoSeconds != nil {
			out <- prometheus.NewMetricWithTimestamp(c.Time.Time, prometheus.MustNewConstMetric(
				cpu, prometheus.CounterValue, float64(*c.UsageCoreNanoSeconds)/1e9, labels...))
		}
		if m != nil && m.WorkingSetBytes != nil {
			out <- prometheus.NewMetricWithTimestamp(m.Time.Time, prometheus.MustNewConstMetric(
				memory, prometheus.GaugeValue, float64(*m.WorkingSetBytes), labels...))
		}
	}
	swapped := func(s *kubelet.SwapStats, usage, limit *prometheus.Desc, labels ...string) {
		if s == nil || s.SwapUsageBytes == nil {
			return
		}
		out <- prometheus.NewMetricWithTimestamp(s.Time.Time, prometheus.MustNewConstMetric(
			usage, prometheus.GaugeValue, float64(*s.SwapUsageBytes), labels...))
		if limit != nil && s.SwapAvailableBytes != nil {
			most := float64(*s.SwapUsageBytes + *s.SwapAvailableBytes)
			out <- prometheus.NewMetricWithTimestamp(s.Time.Time, prometheus.MustNewConstMetric(
				limit, prometheus.GaugeValue, most, labels...))
		}
	}
	taken(all.Node.CPU, all.Node.Memory, r.nodeCPU, r.nodeMemory)
	swapped(all.Node.Swap, r.nodeSwap, nil)
	for _, p := range all.Pods {
		taken(p.CPU, p.Memory, r.podCPU, r.podMemory, p.PodRef.Namespace, p.PodRef.Name)
		swapped(p.Swap, r.podSwap, nil, p.PodRef.Namespace, p.PodRef.Name)
		for _, c := range p.Containers {
			taken(c.CPU, c.Memory, r.cpu, r.memory, c.Name, p.PodRef.Namespace, p.PodRef.Name)
			swapped(c.Swap, r.swap, r.swapLimit, c.Name, p.PodRef.Namespace, p.PodRef.Name)
			out <- prometheus.MustNewConstMetric(r.started, prometheus.GaugeValue, float64(c.StartTime.UnixNano())/1e9,
				c.Name, p.PodRef.Namespace, p.PodRef.Name)
		}
	}
}
