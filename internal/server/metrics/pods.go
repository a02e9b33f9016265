package metrics

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/manifest"
)

// podLabels are the labels that every metric of a pod has, as in kube-state-metrics.
var podLabels = []string{"namespace", "pod", "uid"}

// podMetric describes a metric of kube-state-metrics.
type podMetric struct {
	name, help string
	labels     []string // in addition to podLabels
}

// podMetrics are the metrics of pods.
func podMetrics() []podMetric {
	return []podMetric{
		{"kube_pod_info", "1; the labels describe a pod.", []string{
			"host_ip", "pod_ip", "node", "created_by_kind", "created_by_name", "priority_class", "host_network",
		}},
		{"kube_pod_created", "When a pod was created, in seconds since the epoch.", nil},
		{"kube_pod_start_time", "When a pod started, in seconds since the epoch.", nil},
		{"kube_pod_completion_time", "When a pod completed, in seconds since the epoch.", nil},
		{"kube_pod_deletion_timestamp", "When a pod began to terminate, in seconds since the epoch.", nil},
		{"kube_pod_owner", "1; the labels are the owner of a pod, empty without one.",
			[]string{"owner_kind", "owner_name", "owner_is_controller"}},
		{"kube_pod_ips", "1; the label is an address of a pod.", []string{"ip", "ip_family"}},
		{"kube_pod_runtimeclass_name_info", "1; the label is the runtime class of a pod.", []string{"runtimeclass_name"}},
		{"kube_pod_spec_volumes_persistentvolumeclaims_info", "1; the labels are a volume and its claim.",
			[]string{"volume", "persistentvolumeclaim"}},
		{"kube_pod_spec_volumes_persistentvolumeclaims_readonly", "1 if a pod can only read the volume of a claim.",
			[]string{"volume", "persistentvolumeclaim"}},
		{"kube_pod_restart_policy", "1; the label is the restart policy of a pod.", []string{"type"}},
		{"kube_pod_status_phase", "1 for the phase of a pod, 0 for the others.", []string{"phase"}},
		{"kube_pod_status_ready", "1 for the status of a pod's condition Ready, 0 for the others.", []string{"condition"}},
		{"kube_pod_status_scheduled", "1 for the status of a pod's condition PodScheduled, 0 for the others.",
			[]string{"condition"}},
		{"kube_pod_status_scheduled_time", "When a pod was scheduled, in seconds since the epoch.", nil},
		{"kube_pod_status_initialized_time", "When the init containers of a pod had succeeded, in seconds since the epoch.", nil},
		{"kube_pod_status_container_ready_time", "When the containers of a pod became ready, in seconds since the epoch.", nil},
		{"kube_pod_status_ready_time", "When a pod became ready, in seconds since the epoch.", nil},
		{"kube_pod_status_reason", "1 for the reason of a pod's phase, 0 for the others.", []string{"reason"}},
		{"podrun_pod_rolled_back", "1 while a pod runs a former revision of its manifest, as the present one was not healthy.",
			nil},
		{"kube_pod_status_qos_class", "1 for the QoS class of a pod, 0 for the others.", []string{"qos_class"}},
	}
}

// containerMetrics are the metrics of containers; their names follow kube_pod_container_ or
// kube_pod_init_container_.
func containerMetrics() []podMetric {
	return []podMetric{
		{"info", "1; the labels describe a container.", []string{"container", "image", "image_spec", "image_id", "container_id"}},
		{"status_ready", "1 while a container is ready.", []string{"container"}},
		{"status_restarts_total", "Restarts of a container.", []string{"container"}},
		{"status_running", "1 while a container runs.", []string{"container"}},
		{"status_waiting", "1 while a container waits.", []string{"container"}},
		{"status_waiting_reason", "1; the label is the reason why a container waits.", []string{"container", "reason"}},
		{"status_terminated", "1 while a container has ended.", []string{"container"}},
		{"status_terminated_reason", "1; the label is the reason why a container has ended.", []string{"container", "reason"}},
		{"status_last_terminated_reason", "1; the label is the reason why the previous run of a container ended.",
			[]string{"container", "reason"}},
		{"status_last_terminated_exitcode", "Exit code of the previous run of a container.", []string{"container"}},
		{"status_last_terminated_timestamp", "When the previous run of a container ended, in seconds since the epoch.",
			[]string{"container"}},
		{"state_started", "When a container started, in seconds since the epoch.", []string{"container"}},
		{"resource_requests", "Resources that a container requests.", []string{"container", "node", "resource", "unit"}},
		{"resource_limits", "Limits of a container's resources.", []string{"container", "node", "resource", "unit"}},
	}
}

const (
	ofContainer = "kube_pod_container_"
	ofInit      = "kube_pod_init_container_"
)

// describePods returns the descriptions of the metrics of pods and containers, by name.
func describePods() map[string]*prometheus.Desc {
	out := describe("", podMetrics(), podLabels...)
	maps.Copy(out, describe(ofContainer, containerMetrics(), podLabels...))
	maps.Copy(out, describe(ofInit, containerMetrics(), podLabels...))
	return out
}

// describe returns the descriptions of metrics whose names begin with prefix, by name. Each has the labels first.
func describe(prefix string, all []podMetric, first ...string) map[string]*prometheus.Desc {
	out := map[string]*prometheus.Desc{}
	for _, m := range all {
		out[prefix+m.name] = prometheus.NewDesc(prefix+m.name, m.help, slices.Concat(first, m.labels), nil)
	}
	return out
}

// podCollector emits the metrics of one pod.
type podCollector struct {
	descs map[string]*prometheus.Desc
	out   chan<- prometheus.Metric
	pod   *v1.Pod
}

// gauge emits a metric with the labels of the pod and further ones.
func (c podCollector) gauge(name string, value float64, labels ...string) {
	c.value(name, prometheus.GaugeValue, value, labels...)
}

func (c podCollector) value(name string, kind prometheus.ValueType, value float64, labels ...string) {
	all := append([]string{c.pod.Namespace, c.pod.Name, string(c.pod.UID)}, labels...)
	out, err := prometheus.NewConstMetric(c.descs[name], kind, value, all...)
	if err != nil { // a label that is not UTF-8 makes only its own metric fail
		out = prometheus.NewInvalidMetric(c.descs[name], err)
	}
	c.out <- out
}

// oneOf emits 1 for the value that holds and 0 for the others.
func (c podCollector) oneOf(name, holds string, values ...string) {
	for _, v := range values {
		c.gauge(name, boolean(v == holds), v)
	}
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// collect emits all metrics of the pod and of its containers.
func (c podCollector) collect() {
	p := c.pod
	byKind, byName := "", ""
	for _, owner := range p.OwnerReferences {
		isController := owner.Controller != nil && *owner.Controller
		if isController {
			byKind, byName = owner.Kind, owner.Name
		}
		c.gauge("kube_pod_owner", 1, owner.Kind, owner.Name, strconv.FormatBool(isController))
	}
	if len(p.OwnerReferences) == 0 {
		c.gauge("kube_pod_owner", 1, "", "", "")
	}
	c.gauge("kube_pod_info", 1, p.Status.HostIP, p.Status.PodIP, p.Spec.NodeName, byKind, byName,
		p.Spec.PriorityClassName, strconv.FormatBool(p.Spec.HostNetwork))
	c.spec()
	if !p.CreationTimestamp.IsZero() {
		c.gauge("kube_pod_created", float64(p.CreationTimestamp.Unix()))
	}
	if p.DeletionTimestamp != nil {
		c.gauge("kube_pod_deletion_timestamp", float64(p.DeletionTimestamp.Unix()))
	}
	if p.Status.StartTime != nil {
		c.gauge("kube_pod_start_time", float64(p.Status.StartTime.Unix()))
	}
	if end := completed(p); end != 0 {
		c.gauge("kube_pod_completion_time", float64(end))
	}
	c.gauge("podrun_pod_rolled_back", boolean(p.Annotations[manifest.AnnotationRolledBack] != ""))
	c.gauge("kube_pod_restart_policy", 1, string(p.Spec.RestartPolicy))
	c.oneOf("kube_pod_status_phase", string(p.Status.Phase), "Pending", "Succeeded", "Failed", "Unknown", "Running")
	c.oneOf("kube_pod_status_qos_class", string(p.Status.QOSClass), "BestEffort", "Burstable", "Guaranteed")
	c.oneOf("kube_pod_status_reason", p.Status.Reason,
		"Evicted", "NodeAffinity", "NodeLost", "Shutdown", "UnexpectedAdmissionError")
	c.conditions()
	c.containers(ofInit, p.Spec.InitContainers, p.Status.InitContainerStatuses)
	c.containers(ofContainer, p.Spec.Containers, p.Status.ContainerStatuses)
}

// spec emits what is constant for a pod.
func (c podCollector) spec() {
	if class := c.pod.Spec.RuntimeClassName; class != nil {
		c.gauge("kube_pod_runtimeclass_name_info", 1, *class)
	}
	for i := range c.pod.Spec.Volumes {
		v := &c.pod.Spec.Volumes[i]
		if claim := v.PersistentVolumeClaim; claim != nil {
			c.gauge("kube_pod_spec_volumes_persistentvolumeclaims_info", 1, v.Name, claim.ClaimName)
			c.gauge("kube_pod_spec_volumes_persistentvolumeclaims_readonly", boolean(claim.ReadOnly), v.Name, claim.ClaimName)
		}
	}
	for _, ip := range c.pod.Status.PodIPs {
		family := "4"
		if strings.Contains(ip.IP, ":") {
			family = "6"
		}
		c.gauge("kube_pod_ips", 1, ip.IP, family)
	}
}

// conditions emits the conditions that kube-state-metrics has.
func (c podCollector) conditions() {
	since := map[v1.PodConditionType]string{
		v1.PodScheduled:    "kube_pod_status_scheduled_time",
		v1.PodInitialized:  "kube_pod_status_initialized_time",
		v1.ContainersReady: "kube_pod_status_container_ready_time",
		v1.PodReady:        "kube_pod_status_ready_time",
	}
	states := map[v1.PodConditionType]string{
		v1.PodScheduled: "kube_pod_status_scheduled", v1.PodReady: "kube_pod_status_ready",
	}
	for _, cond := range c.pod.Status.Conditions {
		if name := states[cond.Type]; name != "" {
			c.oneOf(name, strings.ToLower(string(cond.Status)), "true", "false", "unknown")
		}
		name := since[cond.Type]
		if name != "" && cond.Status == v1.ConditionTrue && !cond.LastTransitionTime.IsZero() {
			c.gauge(name, float64(cond.LastTransitionTime.Unix()))
		}
	}
}

// completed returns when the last container of a completed pod ended; 0 if the pod has not
// completed.
func completed(p *v1.Pod) (last int64) {
	if p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
		return 0
	}
	for _, s := range p.Status.ContainerStatuses {
		if t := s.State.Terminated; t != nil && !t.FinishedAt.IsZero() {
			last = max(last, t.FinishedAt.Unix())
		}
	}
	return last
}

// containers emits the metrics of containers.
func (c podCollector) containers(prefix string, specs []v1.Container, statuses []v1.ContainerStatus) {
	images := map[string]string{}
	for i := range specs {
		images[specs[i].Name] = specs[i].Image
		c.resources(prefix+"resource_requests", specs[i].Name, specs[i].Resources.Requests)
		c.resources(prefix+"resource_limits", specs[i].Name, specs[i].Resources.Limits)
	}
	for i := range statuses {
		s := &statuses[i]
		c.gauge(prefix+"info", 1, s.Name, s.Image, images[s.Name], s.ImageID, s.ContainerID)
		c.gauge(prefix+"status_ready", boolean(s.Ready), s.Name)
		c.value(prefix+"status_restarts_total", prometheus.CounterValue, float64(s.RestartCount), s.Name)
		c.state(prefix, s)
	}
}

// state emits the current state of a container and how its previous run ended.
func (c podCollector) state(prefix string, s *v1.ContainerStatus) {
	running, waiting, ended := s.State.Running, s.State.Waiting, s.State.Terminated
	c.gauge(prefix+"status_running", boolean(running != nil), s.Name)
	c.gauge(prefix+"status_waiting", boolean(waiting != nil), s.Name)
	c.gauge(prefix+"status_terminated", boolean(ended != nil), s.Name)
	if running != nil && !running.StartedAt.IsZero() {
		c.gauge(prefix+"state_started", float64(running.StartedAt.Unix()), s.Name)
	}
	if waiting != nil && waiting.Reason != "" {
		c.gauge(prefix+"status_waiting_reason", 1, s.Name, waiting.Reason)
	}
	if ended != nil {
		if !ended.StartedAt.IsZero() {
			c.gauge(prefix+"state_started", float64(ended.StartedAt.Unix()), s.Name)
		}
		if ended.Reason != "" {
			c.gauge(prefix+"status_terminated_reason", 1, s.Name, ended.Reason)
		}
	}
	if last := s.LastTerminationState.Terminated; last != nil {
		if last.Reason != "" {
			c.gauge(prefix+"status_last_terminated_reason", 1, s.Name, last.Reason)
		}
		c.gauge(prefix+"status_last_terminated_exitcode", float64(last.ExitCode), s.Name)
		if !last.FinishedAt.IsZero() {
			c.gauge(prefix+"status_last_terminated_timestamp", float64(last.FinishedAt.Unix()), s.Name)
		}
	}
}

// resources emits requests or limits with kube-state-metrics' names and units.
func (c podCollector) resources(name, container string, list v1.ResourceList) {
	for key, q := range list {
		resource, unit, value := resourceOf(key, q)
		c.gauge(name, value, container, c.pod.Spec.NodeName, resource, unit)
	}
}

func resourceOf(key v1.ResourceName, q quantity.Quantity) (name, unit string, value float64) {
	name = strings.NewReplacer("/", "_", ".", "_", "-", "_").Replace(string(key))
	switch {
	case key == v1.ResourceCPU:
		return name, "core", float64(q.MilliValue()) / 1000
	case key == v1.ResourceMemory, key == v1.ResourceEphemeralStorage, key == v1.ResourceStorage,
		strings.HasPrefix(string(key), v1.ResourceHugePagesPrefix):
		return name, "byte", float64(q.Value())
	}
	return name, "integer", float64(q.Value())
}
