package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/gc"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/relist"
	"podrun.io/podrun/internal/status/plugins"
)

// Node is what metrics are read from when they are scraped.
type Node interface {
	// Counts returns the numbers of pods and instances.
	Counts() relist.Counts
	// Desired returns the pods and problems that the manifest sources last reported.
	Desired() manifest.Desired
	// Pods returns the pods with their statuses.
	Pods() ([]v1.Pod, error)
	// Disks returns the usage of the disks.
	Disks() []gc.Usage
	// ImagesRemoved returns how many unused images were removed, by reason.
	ImagesRemoved() map[string]int
	// Plugins returns the device plugins and CSI drivers.
	Plugins() ([]plugins.Plugin, error)
}

// Watch adds the metrics that are read from n at every scrape. It must be called once, before the
// first scrape.
func (m *Metrics) Watch(n Node) {
	described := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	m.registry.MustRegister(&node{
		from:        n,
		runningPods: described("kubelet_running_pods", "Pods that have a sandbox that is ready."),
		containers:  described("kubelet_running_containers", "Containers by state.", "container_state"),
		desired:     described("kubelet_desired_pods", "Pods that the manifests want.", "static"),
		problems: described("podrun_manifest_problems",
			"Manifests that cannot be used, and sources that cannot be read, by kind of source.", "source"),
		warnings: described("podrun_manifest_warnings",
			"Manifests that are used although they have a problem, by kind of source.", "source"),
		complete: described("podrun_sources_ready",
			"1 when every source of manifests has been read; before that, nothing is removed."),
		capacity: described("podrun_disk_capacity_bytes",
			"Size of the file system of podrun's data, logs or images.", "disk"),
		available: described("podrun_disk_available_bytes", "Free space on that file system.", "disk"),
		pressed: described("podrun_disk_pressure",
			"1 while less than --disk-pressure-threshold of that file system is free.", "disk"),
		collected: described("kubelet_image_garbage_collected_total",
			"Unused images that were removed, by reason.", "reason"),
		pods: describePods(), jobs: describeJobs(), cronJobs: describeCronJobs(), workloads: describeWorkloads(),
		plugins: describePlugins(),
	})
}

// node is the collector that reads a Node at each scrape.
type node struct {
	from                                                 Node
	runningPods, containers, desired, problems, warnings *prometheus.Desc
	complete                                             *prometheus.Desc
	capacity, available, pressed, collected              *prometheus.Desc
	pods, jobs, cronJobs, workloads, plugins             map[string]*prometheus.Desc
}

// Describe implements prometheus.Collector.
func (n *node) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		n.runningPods, n.containers, n.desired, n.problems, n.warnings, n.complete,
		n.capacity, n.available, n.pressed, n.collected,
	} {
		out <- d
	}
	for _, all := range []map[string]*prometheus.Desc{n.pods, n.jobs, n.cronJobs, n.workloads, n.plugins} {
		for _, d := range all {
			out <- d
		}
	}
}

// Collect implements prometheus.Collector.
func (n *node) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	counts := n.from.Counts()
	gauge(n.runningPods, counts.Pods)
	for _, s := range []pod.State{pod.Running, pod.Exited, pod.Created, pod.Unknown} {
		gauge(n.containers, counts.Containers[s], s.String())
	}
	desired := n.from.Desired()
	gauge(n.desired, len(desired.Pods), "true")
	complete := 0
	if desired.Complete {
		complete = 1
	}
	gauge(n.complete, complete)
	problems, warnings := bySource(desired.Problems), bySource(desired.Warnings)
	kinds := slices.Concat([]string{manifest.SourceFile, manifest.SourceHTTP}, desired.Kinds)
	slices.Sort(kinds)
	for _, source := range slices.Compact(kinds) {
		gauge(n.problems, problems[source], source)
		gauge(n.warnings, warnings[source], source)
	}
	n.disks(out)
	collectPlugins(n.plugins, n.from, out)
	collectJobs(n.jobs, desired, out)
	collectCronJobs(n.cronJobs, desired, out)
	pods, err := n.from.Pods()
	if err != nil {
		out <- prometheus.NewInvalidMetric(n.pods["kube_pod_info"], err)
		return
	}
	collectWorkloads(n.workloads, desired, pods, out)
	for i := range pods {
		podCollector{descs: n.pods, out: out, pod: &pods[i]}.collect()
	}
}

// disks adds the metrics of the disks and of the images that were removed from them.
func (n *node) disks(out chan<- prometheus.Metric) {
	for _, d := range n.from.Disks() {
		pressed := 0.0
		if d.Pressed {
			pressed = 1
		}
		for desc, value := range map[*prometheus.Desc]float64{
			n.capacity: float64(d.Capacity), n.available: float64(d.Available), n.pressed: pressed,
		} {
			out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, d.Name)
		}
	}
	for reason, count := range n.from.ImagesRemoved() {
		out <- prometheus.MustNewConstMetric(n.collected, prometheus.CounterValue, float64(count), reason)
	}
}

func bySource(problems []manifest.Problem) map[string]int {
	n := map[string]int{}
	for _, p := range problems {
		n[p.Origin.Source]++
	}
	return n
}
