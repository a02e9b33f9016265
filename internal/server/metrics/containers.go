package metrics

import (
	"cmp"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"podrun.io/podrun/internal/cgroup"
	"podrun.io/podrun/internal/stats"
	"podrun.io/podrun/internal/sys"
)

// groupLabels are the labels of every metric of a container or a pod, as the kubelet serves cAdvisor's.
// The machine has the id "/".
var groupLabels = []string{"container", "id", "image", "name", "namespace", "pod"}

// groupMetric describes one of cAdvisor's metrics.
type groupMetric struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string // in addition to groupLabels
	// of emits the metric of a cgroup; nil: it is emitted with others. Values that the kernel does not
	// have are left out.
	of func(g *stats.Group, emit func(value float64, labels ...string))
}

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
	// untyped is the type of metrics whose names, which are cAdvisor's, do not fit their type.
	untyped = prometheus.UntypedValue
)

// counted and measured return a metric with one value.
func counted(name, help string, of func(g *stats.Group) float64) groupMetric {
	return groupMetric{name: name, help: help, kind: counter, of: single(of)}
}

func measured(name, help string, of func(g *stats.Group) float64) groupMetric {
	return groupMetric{name: name, help: help, kind: gauge, of: single(of)}
}

func single(of func(g *stats.Group) float64) func(g *stats.Group, emit func(float64, ...string)) {
	return func(g *stats.Group, emit func(float64, ...string)) { emit(of(g)) }
}

// groupMetrics are the metrics of containers and pods.
func groupMetrics() []groupMetric {
	all := append(cpuMetrics(), memoryMetrics()...)
	all = append(all, specMetrics()...)
	all = append(all, diskMetrics()...)
	all = append(all, networkMetrics()...)
	all = append(all, pressureMetrics()...)
	return append(all,
		measured("container_processes", "Processes of a container.", func(g *stats.Group) float64 { return float64(g.Processes) }),
		measured("container_threads", "Processes and threads of a container.",
			func(g *stats.Group) float64 { return float64(g.Details.Tasks) }),
		measured("container_threads_max", "Limit of the processes and threads of a container; 0: none.",
			func(g *stats.Group) float64 { return float64(g.Details.MostTasks) }),
		measured("container_start_time_seconds", "When a container started, in seconds since the epoch.",
			func(g *stats.Group) float64 { return seconds(g.Started) }),
		measured("container_last_seen", "When a container was last seen, in seconds since the epoch.",
			func(*stats.Group) float64 { return seconds(time.Now()) }),
	)
}

func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixNano()) / float64(time.Second)
}

func cpuMetrics() []groupMetric {
	return []groupMetric{
		{"container_cpu_usage_seconds_total", "CPU time of a container, in core-seconds.", counter, []string{"cpu"},
			func(g *stats.Group, emit func(float64, ...string)) { emit(g.Details.CPU.Seconds(), "total") }},
		counted("container_cpu_user_seconds_total", "CPU time of a container in its programs, in core-seconds.",
			func(g *stats.Group) float64 { return g.Details.User.Seconds() }),
		counted("container_cpu_system_seconds_total", "CPU time of a container in the kernel, in core-seconds.",
			func(g *stats.Group) float64 { return g.Details.System.Seconds() }),
		counted("container_cpu_cfs_periods_total", "Periods of the CPU limit in which a container was active.",
			func(g *stats.Group) float64 { return float64(g.Details.Quota.Periods) }),
		counted("container_cpu_cfs_throttled_periods_total", "Periods in which a container used up its CPU limit.",
			func(g *stats.Group) float64 { return float64(g.Details.Quota.Throttled) }),
		counted("container_cpu_cfs_throttled_seconds_total", "How long a container waited because of its CPU limit.",
			func(g *stats.Group) float64 { return g.Details.Quota.Waited.Seconds() }),
	}
}

func memoryMetrics() []groupMetric {
	return []groupMetric{
		measured("container_memory_usage_bytes", "Memory of a container, with all cached files.",
			func(g *stats.Group) float64 { return float64(g.Details.Memory) }),
		measured("container_memory_working_set_bytes", "Memory of a container without inactive cached files.",
			func(g *stats.Group) float64 { return float64(g.Details.WorkingSet) }),
		measured("container_memory_max_usage_bytes", "Highest memory of a container since it started.",
			func(g *stats.Group) float64 { return float64(g.Details.Peak) }),
		measured("container_memory_rss", "Anonymous memory of a container, in bytes.",
			func(g *stats.Group) float64 { return float64(g.Details.RSS) }),
		measured("container_memory_cache", "Cached files of a container, in bytes.",
			func(g *stats.Group) float64 { return float64(g.Details.Cache) }),
		measured("container_memory_mapped_file", "Mapped files of a container, in bytes.",
			func(g *stats.Group) float64 { return float64(g.Details.MappedFile) }),
		measured("container_memory_kernel_usage", "Memory of the kernel for a container, in bytes.",
			func(g *stats.Group) float64 { return float64(g.Details.Kernel) }),
		{"container_memory_swap", "Swapped-out memory of a container, in bytes.", gauge, nil,
			func(g *stats.Group, emit func(float64, ...string)) {
				if g.Details.Swap >= 0 {
					emit(float64(g.Details.Swap))
				}
			}},
		{"container_memory_failcnt", "How often the memory of a container reached its limit.", untyped, nil,
			single(func(g *stats.Group) float64 { return float64(g.Details.LimitHits) })},
		{"container_memory_failures_total", "Page faults of a container.", counter, []string{"failure_type", "scope"},
			func(g *stats.Group, emit func(float64, ...string)) {
				emit(float64(g.Details.PageFaults), "pgfault", "hierarchy")
				emit(float64(g.Details.MajorPageFaults), "pgmajfault", "hierarchy")
			}},
		counted("container_oom_events_total", "Processes of a container that were killed for lack of memory.",
			func(g *stats.Group) float64 { return float64(g.Details.OOMKills) }),
	}
}

func specMetrics() []groupMetric {
	return []groupMetric{
		measured("container_spec_cpu_shares", "CPU weight of a container.",
			func(g *stats.Group) float64 { return float64(g.Details.Quota.Shares) }),
		measured("container_spec_cpu_period", "Period of the CPU limit of a container, in microseconds.",
			func(g *stats.Group) float64 { return float64(g.Details.Quota.Period.Microseconds()) }),
		{"container_spec_cpu_quota", "CPU limit of a container, in microseconds for each period.", gauge, nil,
			func(g *stats.Group, emit func(float64, ...string)) {
				if g.Details.Quota.Limit > 0 {
					emit(float64(g.Details.Quota.Limit.Microseconds()))
				}
			}},
		measured("container_spec_memory_limit_bytes", "Memory limit of a container; 0: none.",
			func(g *stats.Group) float64 { return float64(g.Details.MemoryLimit) }),
		measured("container_spec_memory_swap_limit_bytes", "Swap limit of a container; 0: none.",
			func(g *stats.Group) float64 { return float64(max(g.Details.SwapLimit, 0)) }),
	}
}

func diskMetrics() []groupMetric {
	device := []string{"device"}
	traffic := func(name, help string, of func(d *cgroup.Device) int64) groupMetric {
		return groupMetric{name, help, counter, device, func(g *stats.Group, emit func(float64, ...string)) {
			for i := range g.Details.Devices {
				d := &g.Details.Devices[i]
				emit(float64(of(d)), cmp.Or(sys.BlockDevice(d.Number), d.Number))
			}
		}}
	}
	return []groupMetric{
		traffic("container_fs_reads_bytes_total", "Bytes that a container read from a device.",
			func(d *cgroup.Device) int64 { return d.BytesRead }),
		traffic("container_fs_writes_bytes_total", "Bytes that a container wrote to a device.",
			func(d *cgroup.Device) int64 { return d.BytesWritten }),
		traffic("container_fs_reads_total", "Reads of a container from a device.",
			func(d *cgroup.Device) int64 { return d.Reads }),
		traffic("container_fs_writes_total", "Writes of a container to a device.",
			func(d *cgroup.Device) int64 { return d.Writes }),
		{name: "container_fs_usage_bytes", help: "Size of the writable layer of a container.", kind: gauge, labels: device},
		{name: "container_fs_limit_bytes", help: "Size of the file system with the writable layer of a container.",
			kind: gauge, labels: device},
		{name: "container_fs_inodes_free", help: "Free inodes of that file system.", kind: gauge, labels: device},
		{name: "container_fs_inodes_total", help: "Inodes of that file system.", kind: untyped, labels: device},
	}
}

// networkMetrics are those of a pod's interfaces, and of the machine's.
func networkMetrics() (out []groupMetric) {
	for _, direction := range []struct {
		name, verb string
		of         func(l *sys.Link) [4]uint64
	}{
		{"receive", "received", func(l *sys.Link) [4]uint64 {
			return [4]uint64{l.RxBytes, l.RxPackets, l.RxErrors, l.RxDropped}
		}},
		{"transmit", "sent", func(l *sys.Link) [4]uint64 {
			return [4]uint64{l.TxBytes, l.TxPackets, l.TxErrors, l.TxDropped}
		}},
	} {
		for i, what := range []struct{ name, help string }{
			{"bytes", "Bytes that a pod " + direction.verb + "."},
			{"packets", "Packets that a pod " + direction.verb + "."},
			{"errors", "Errors of packets that a pod " + direction.verb + "."},
			{"packets_dropped", "Packets that were dropped when a pod " + direction.verb + " them."},
		} {
			of, name := direction.of, "container_network_"+direction.name+"_"+what.name+"_total"
			out = append(out, groupMetric{name, what.help, counter, []string{"interface"},
				func(g *stats.Group, emit func(float64, ...string)) {
					for _, l := range g.Links {
						emit(float64(of(&l)[i]), l.Name)
					}
				},
			})
		}
	}
	return out
}

// pressureMetrics are those of containers, pods and the machine where the kernel says it.
func pressureMetrics() (out []groupMetric) {
	for _, resource := range []struct {
		name, of string
		stalls   func(p *cgroup.Pressure) *cgroup.Stalls
	}{
		{"cpu", "the CPU", func(p *cgroup.Pressure) *cgroup.Stalls { return p.CPU }},
		{"memory", "memory", func(p *cgroup.Pressure) *cgroup.Stalls { return p.Memory }},
		{"io", "I/O", func(p *cgroup.Pressure) *cgroup.Stalls { return p.IO }},
	} {
		for _, kind := range []struct {
			name, who string
			of        func(s *cgroup.Stalls) time.Duration
		}{
			{"waiting", "some processes", func(s *cgroup.Stalls) time.Duration { return s.Some.Total }},
			{"stalled", "all processes at once", func(s *cgroup.Stalls) time.Duration { return s.Full.Total }},
		} {
			out = append(out, groupMetric{
				name: "container_pressure_" + resource.name + "_" + kind.name + "_seconds_total",
				help: "How long " + kind.who + " of a container waited for " + resource.of + ".", kind: counter,
				of: func(g *stats.Group, emit func(float64, ...string)) {
					if s := resource.stalls(&g.Pressure); s != nil {
						emit(kind.of(s).Seconds())
					}
				},
			})
		}
	}
	return out
}

// Containers returns the handler of container metrics with the names and labels that the kubelet serves
// at /metrics/cadvisor.
func Containers(groups func() (stats.Groups, error), log *slog.Logger) http.Handler {
	c := &containers{groups: groups, log: log, metrics: groupMetrics(), descs: map[string]*prometheus.Desc{}}
	for _, m := range c.metrics {
		labels := append(append([]string{}, groupLabels...), m.labels...)
		c.descs[m.name] = prometheus.NewDesc(m.name, m.help, labels, nil)
	}
	for name, help := range map[string]string{
		scrapeError:            "1 if not everything could be read, else 0.",
		"machine_cpu_cores":    "Processors of the machine.",
		"machine_memory_bytes": "Memory of the machine.",
		"machine_swap_bytes":   "Swap space of the machine.",
	} {
		c.descs[name] = prometheus.NewDesc(name, help, nil, nil)
	}
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		MaxRequestsInFlight: 4,
	})
}

const scrapeError = "container_scrape_error"

// containers is the collector that reads all cgroups at each scrape.
type containers struct {
	groups  func() (stats.Groups, error)
	log     *slog.Logger
	metrics []groupMetric
	descs   map[string]*prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *containers) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *containers) Collect(out chan<- prometheus.Metric) {
	all, err := c.groups()
	if err != nil {
		c.log.Debug("resource usage of containers could not be read completely", "err", err)
	}
	e := emitter{c.descs, out}
	e.emit(scrapeError, gauge, boolean(err != nil))
	c.machine(e, &all)
	for i := range all.All {
		g := &all.All[i]
		labels := []string{g.Container, g.Path, g.Image, g.ID, g.Pod.Namespace, g.Pod.Name}
		for _, m := range c.metrics {
			if m.of != nil {
				m.of(g, func(value float64, further ...string) {
					e.emit(m.name, m.kind, value, append(append([]string{}, labels...), further...)...)
				})
			}
		}
		if g.Disk != nil {
			e.disk(all.Layers, float64(g.Disk.Bytes), labels)
		}
	}
}

// machine emits what the machine has, and what it uses, with the id "/".
func (c *containers) machine(e emitter, all *stats.Groups) {
	labels := []string{"", "/", "", "", "", ""}
	if m := &all.Machine; m.Total > 0 {
		e.emit("machine_cpu_cores", gauge, float64(m.Processors))
		e.emit("machine_memory_bytes", gauge, float64(m.Total))
		e.emit("machine_swap_bytes", gauge, float64(m.SwapTotal))
		e.emit("container_cpu_usage_seconds_total", counter, m.CPU.Seconds(), append(labels, "total")...)
		e.emit("container_memory_usage_bytes", gauge, float64(m.Memory), labels...)
		e.emit("container_memory_working_set_bytes", gauge, float64(m.WorkingSet), labels...)
		e.emit("container_memory_swap", gauge, float64(m.Swap), labels...)
		e.emit("container_spec_memory_limit_bytes", gauge, float64(m.Total), labels...)
		e.emit("container_start_time_seconds", gauge, seconds(m.Since), labels...)
	}
	if all.Data.Capacity > 0 {
		e.disk(all.Data, float64(all.Data.Capacity-all.Data.Free), labels)
	}
	whole := stats.Group{Links: all.Links, Pressure: all.Pressure}
	for _, m := range append(networkMetrics(), pressureMetrics()...) {
		m.of(&whole, func(value float64, further ...string) {
			e.emit(m.name, m.kind, value, append(labels, further...)...)
		})
	}
}

// emitter emits metrics with constant values.
type emitter struct {
	descs map[string]*prometheus.Desc
	out   chan<- prometheus.Metric
}

func (e emitter) emit(name string, kind prometheus.ValueType, value float64, labels ...string) {
	m, err := prometheus.NewConstMetric(e.descs[name], kind, value, labels...)
	if err != nil { // a label that is not UTF-8 makes only its own metric fail
		m = prometheus.NewInvalidMetric(e.descs[name], err)
	}
	e.out <- m
}

// disk emits the usage of a file system.
func (e emitter) disk(on stats.Volume, used float64, labels []string) {
	labels = append(append([]string{}, labels...), on.Device)
	e.emit("container_fs_usage_bytes", gauge, used, labels...)
	e.emit("container_fs_limit_bytes", gauge, float64(on.Capacity), labels...)
	e.emit("container_fs_inodes_free", gauge, float64(on.FilesFree), labels...)
	e.emit("container_fs_inodes_total", untyped, float64(on.Files), labels...)
}
