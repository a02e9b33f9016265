package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/workload"
)

// countMetric is a metric of kube-state-metrics that counts pods of a workload. All have the labels namespace and that
// of the kind.
type countMetric struct {
	kind       workload.Kind
	name, help string
	value      func(workload.Summary) int32
}

// kindLabels are the labels with the names of workloads, as in kube-state-metrics (docs/metrics/workload).
var kindLabels = map[workload.Kind]string{
	workload.Deployment: "deployment", workload.ReplicaSet: "replicaset",
	workload.StatefulSet: "statefulset", workload.DaemonSet: "daemonset",
}

// conditionMetric has the conditions of Deployments.
const conditionMetric = "kube_deployment_status_condition"

// countMetrics are the metrics that count pods of workloads.
func countMetrics() []countMetric {
	desired := func(s workload.Summary) int32 { return s.Desired }
	current := func(s workload.Summary) int32 { return s.Current }
	ready := func(s workload.Summary) int32 { return s.Ready }
	available := func(s workload.Summary) int32 { return s.Available }
	updated := func(s workload.Summary) int32 { return s.Updated }
	missing := func(s workload.Summary) int32 { return max(s.Desired-s.Available, 0) }
	unavailable := func(s workload.Summary) int32 { return s.Unavailable() }
	ofCurrent := func(s workload.Summary) int32 { n, _ := s.CurrentRevision(); return n }
	const (
		wants, has   = "Pods that the manifest asks for.", "Pods that exist."
		areReady     = "Pods that are ready."
		areAvailable = "Pods that have been ready for minReadySeconds."
		areUpdated   = "Pods that run the template of the manifest."
		areMissing   = "Pods that the manifest asks for and that are not available."
		areNot       = "Pods that are not available, of those that the manifest asks for or, if there are more, of all."
		areCurrent   = "Pods that run the template before the one that is being updated to; without an update, of the manifest."
	)
	return []countMetric{
		{workload.Deployment, "kube_deployment_spec_replicas", wants, desired},
		{workload.Deployment, "kube_deployment_status_replicas", has, current},
		{workload.Deployment, "kube_deployment_status_replicas_ready", areReady, ready},
		{workload.Deployment, "kube_deployment_status_replicas_available", areAvailable, available},
		{workload.Deployment, "kube_deployment_status_replicas_unavailable", areNot, unavailable},
		{workload.Deployment, "kube_deployment_status_replicas_updated", areUpdated, updated},
		{workload.ReplicaSet, "kube_replicaset_spec_replicas", wants, desired},
		{workload.ReplicaSet, "kube_replicaset_status_replicas", has, current},
		{workload.ReplicaSet, "kube_replicaset_status_ready_replicas", areReady, ready},
		{workload.StatefulSet, "kube_statefulset_replicas", wants, desired},
		{workload.StatefulSet, "kube_statefulset_status_replicas", has, current},
		{workload.StatefulSet, "kube_statefulset_status_replicas_ready", areReady, ready},
		{workload.StatefulSet, "kube_statefulset_status_replicas_available", areAvailable, available},
		{workload.StatefulSet, "kube_statefulset_status_replicas_current", areCurrent, ofCurrent},
		{workload.StatefulSet, "kube_statefulset_status_replicas_updated", areUpdated, updated},
		{workload.DaemonSet, "kube_daemonset_status_desired_number_scheduled", wants, desired},
		{workload.DaemonSet, "kube_daemonset_status_current_number_scheduled", has, current},
		{workload.DaemonSet, "kube_daemonset_status_number_ready", areReady, ready},
		{workload.DaemonSet, "kube_daemonset_status_number_available", areAvailable, available},
		{workload.DaemonSet, "kube_daemonset_status_number_unavailable", areMissing, missing},
		{workload.DaemonSet, "kube_daemonset_status_updated_number_scheduled", areUpdated, updated},
	}
}

// describeWorkloads returns the descriptions of the metrics of workloads but Jobs, by name.
func describeWorkloads() map[string]*prometheus.Desc {
	out := map[string]*prometheus.Desc{}
	for _, m := range countMetrics() {
		out[m.name] = prometheus.NewDesc(m.name, m.help, []string{"namespace", kindLabels[m.kind]}, nil)
	}
	out[conditionMetric] = prometheus.NewDesc(conditionMetric,
		"1 for the status of a Deployment's condition, 0 for the others.",
		[]string{"namespace", "deployment", "reason", "condition", "status"}, nil)
	return out
}

// collectWorkloads emits the metrics of the workloads but Jobs.
func collectWorkloads(
	descs map[string]*prometheus.Desc, d manifest.Desired, pods []v1.Pod, out chan<- prometheus.Metric,
) {
	of := map[workload.ID][]*v1.Pod{}
	for i := range pods {
		if id, ok := workload.Of(&pods[i]); ok {
			of[id] = append(of[id], &pods[i])
		}
	}
	for _, w := range d.Workloads {
		s := d.Summarize(w, of[w.ID], time.Now())
		gauge := func(name string, value float64, labels ...string) {
			all := append([]string{w.Key.Namespace, w.Key.Name}, labels...)
			out <- prometheus.MustNewConstMetric(descs[name], prometheus.GaugeValue, value, all...)
		}
		for _, m := range countMetrics() {
			if m.kind == w.Kind {
				gauge(m.name, float64(m.value(s)))
			}
		}
		for _, c := range s.Conditions {
			for label, status := range map[string]v1.ConditionStatus{
				"true": v1.ConditionTrue, "false": v1.ConditionFalse, "unknown": v1.ConditionUnknown,
			} {
				gauge(conditionMetric, boolean(c.Status == status), c.Reason, string(c.Type), label)
			}
		}
	}
}
