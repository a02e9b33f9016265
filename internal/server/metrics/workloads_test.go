package metrics

import (
	"log/slog"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/revisions"
)

// podOf returns a pod of a workload that runs the template with the hash.
func podOf(id workload.ID, name, hash string, ready bool) v1.Pod {
	p := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: id.Key.Namespace, Name: name, UID: types.UID(name), Annotations: map[string]string{
		workload.Annotation: id.String(), manifest.AnnotationManifestHash: hash,
	}}}
	if ready {
		p.Status.Conditions = []v1.PodCondition{{
			Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.Time{Time: time.Now().Add(-time.Minute)},
		}}
	}
	return p
}

// TestWorkloadsAsKubeStateMetrics: names, labels and values are those of kube-state-metrics' docs/metrics/workload.
func TestWorkloadsAsKubeStateMetrics(t *testing.T) {
	t.Parallel()
	id := func(kind workload.Kind) workload.ID {
		return workload.ID{Kind: kind, Key: pod.Key{Namespace: "default", Name: "web"}}
	}
	template := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{manifest.AnnotationManifestHash: "new"}}}
	d := manifest.Desired{}
	var pods []v1.Pod
	for _, w := range []workload.Workload{
		{ID: id(workload.Deployment), Object: &appsv1.Deployment{Spec: appsv1.DeploymentSpec{ProgressDeadlineSeconds: new(int32(600))}}},
		{ID: id(workload.ReplicaSet), Object: &appsv1.ReplicaSet{}},
		{ID: id(workload.StatefulSet), Object: &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{MinReadySeconds: 3600}}},
		{ID: id(workload.DaemonSet), Object: &appsv1.DaemonSet{}},
	} {
		w.Template, w.Replicas = template, 3
		if w.Kind == workload.DaemonSet {
			w.Replicas = 1
		}
		d.Workloads = append(d.Workloads, &w)
		pods = append(pods, podOf(w.ID, string(w.Kind)+"-0", "new", true), podOf(w.ID, string(w.Kind)+"-1", "old", false))
	}
	m := New(slog.New(slog.DiscardHandler))
	m.Watch(machine{desired: d, pods: pods})
	text := scrape(t, m)
	wantLines(t, text,
		`kube_deployment_spec_replicas{deployment="web",namespace="default"} 3`,
		`kube_deployment_status_replicas{deployment="web",namespace="default"} 2`,
		`kube_deployment_status_replicas_ready{deployment="web",namespace="default"} 1`,
		`kube_deployment_status_replicas_available{deployment="web",namespace="default"} 1`,
		`kube_deployment_status_replicas_unavailable{deployment="web",namespace="default"} 2`,
		`kube_deployment_status_replicas_updated{deployment="web",namespace="default"} 1`,
		`kube_deployment_status_condition{condition="Available",deployment="web",namespace="default",reason="MinimumReplicasUnavailable",status="false"} 1`,
		`kube_deployment_status_condition{condition="Available",deployment="web",namespace="default",reason="MinimumReplicasUnavailable",status="true"} 0`,
		`kube_deployment_status_condition{condition="Progressing",deployment="web",namespace="default",reason="ReplicaSetUpdated",status="false"} 0`,
		`kube_deployment_status_condition{condition="Progressing",deployment="web",namespace="default",reason="ReplicaSetUpdated",status="true"} 1`,
		`kube_deployment_status_condition{condition="Progressing",deployment="web",namespace="default",reason="ReplicaSetUpdated",status="unknown"} 0`,
		`kube_replicaset_spec_replicas{namespace="default",replicaset="web"} 3`,
		`kube_replicaset_status_replicas{namespace="default",replicaset="web"} 2`,
		`kube_replicaset_status_ready_replicas{namespace="default",replicaset="web"} 1`,
		`kube_statefulset_replicas{namespace="default",statefulset="web"} 3`,
		`kube_statefulset_status_replicas_ready{namespace="default",statefulset="web"} 1`,
		`kube_statefulset_status_replicas_available{namespace="default",statefulset="web"} 0`,
		`kube_statefulset_status_replicas_current{namespace="default",statefulset="web"} 1`,
		`kube_statefulset_status_replicas_updated{namespace="default",statefulset="web"} 1`,
		`kube_daemonset_status_desired_number_scheduled{daemonset="web",namespace="default"} 1`,
		`kube_daemonset_status_current_number_scheduled{daemonset="web",namespace="default"} 1`,
		`kube_daemonset_status_number_ready{daemonset="web",namespace="default"} 1`,
		`kube_daemonset_status_number_unavailable{daemonset="web",namespace="default"} 0`,
		`kube_daemonset_status_updated_number_scheduled{daemonset="web",namespace="default"} 1`,
	)
	promtool(t, text)
}

// TestDeploymentRolledBack: the conditions are those that podrun get shows, and a pod beyond the replicas that is not
// available counts for the metric as it does there.
func TestDeploymentRolledBack(t *testing.T) {
	t.Parallel()
	id := workload.ID{Kind: workload.Deployment, Key: pod.Key{Namespace: "default", Name: "web"}}
	w := &workload.Workload{
		ID: id, Replicas: 1, Object: &appsv1.Deployment{Spec: appsv1.DeploymentSpec{ProgressDeadlineSeconds: new(int32(600))}},
		Template: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{manifest.AnnotationManifestHash: "new"}}},
	}
	h := &revisions.History{Good: &revisions.Revision{ID: "a"}, RolledBack: "b", Past: []revisions.Outcome{
		{ID: "b", Result: revisions.RolledBack, Reason: "it is not ready"},
	}}
	m := New(slog.New(slog.DiscardHandler))
	m.Watch(machine{
		desired: manifest.Desired{
			Workloads: []*workload.Workload{w},
			Histories: workload.Histories{Revisions: map[workload.ID]*revisions.History{id: h}},
		},
		pods: []v1.Pod{podOf(id, "web-0", "old", true), podOf(id, "web-1", "new", false)},
	})
	wantLines(t, scrape(t, m),
		`kube_deployment_status_replicas_unavailable{deployment="web",namespace="default"} 1`,
		`kube_deployment_status_condition{condition="Progressing",deployment="web",namespace="default",reason="ProgressDeadlineExceeded",status="false"} 1`,
		`kube_deployment_status_condition{condition="Available",deployment="web",namespace="default",reason="MinimumReplicasAvailable",status="true"} 1`,
	)
}
