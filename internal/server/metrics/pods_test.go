package metrics

import (
	"log/slog"
	"os/exec"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reported returns a pod of which everything is known: an init container that is done, a container that is in back-off
// after it was killed for its memory, and one that runs.
func reported() v1.Pod {
	at := func(s int64) metav1.Time { return metav1.Time{Time: time.Unix(s, 0)} }
	started := at(100)
	p := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-n", UID: "u1", CreationTimestamp: at(99)}}
	p.Spec = v1.PodSpec{
		NodeName: "n", RestartPolicy: v1.RestartPolicyAlways, PriorityClassName: "system-node-critical",
		Containers: []v1.Container{
			{Name: "a", Image: "app", Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{"cpu": quantity.MustParse("250m"), "hugepages-2Mi": quantity.MustParse("4Mi")},
				Limits:   v1.ResourceList{"memory": quantity.MustParse("64Mi"), "example.com/gpu": quantity.MustParse("2")},
			}},
			{Name: "b", Image: "side"},
		},
		InitContainers:   []v1.Container{{Name: "i", Image: "init"}},
		RuntimeClassName: new("gvisor"),
		Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "store", ReadOnly: true},
		}}},
	}
	p.Status = v1.PodStatus{
		Phase: v1.PodRunning, HostIP: "10.0.0.1", PodIP: "10.88.0.2", StartTime: &started, QOSClass: v1.PodQOSBurstable,
		PodIPs: []v1.PodIP{{IP: "10.88.0.2"}, {IP: "fd00::2"}},
		Conditions: []v1.PodCondition{
			{Type: v1.PodReady, Status: v1.ConditionFalse, LastTransitionTime: at(104)},
			{Type: v1.ContainersReady, Status: v1.ConditionTrue, LastTransitionTime: at(103)},
			{Type: v1.PodInitialized, Status: v1.ConditionTrue, LastTransitionTime: at(102)},
			{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: at(99)},
		},
		InitContainerStatuses: []v1.ContainerStatus{{Name: "i", Ready: true, State: v1.ContainerState{
			Terminated: &v1.ContainerStateTerminated{Reason: "Completed", StartedAt: at(101), FinishedAt: at(102)},
		}}},
		ContainerStatuses: []v1.ContainerStatus{
			{
				Name: "a", Image: "docker.io/library/app:latest", ImageID: "sha256:1", ContainerID: "containerd://x", RestartCount: 3,
				State:                v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
				LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137, FinishedAt: at(105)}},
			},
			{Name: "b", Ready: true, State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: at(103)}}},
		},
	}
	return p
}

// TestPodsAsKubeStateMetrics: names, labels and values are those of kube-state-metrics' docs/metrics/workload/pod-metrics.md.
func TestPodsAsKubeStateMetrics(t *testing.T) {
	t.Parallel()
	m := New(slog.New(slog.DiscardHandler))
	done := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job-n", UID: "u2"}}
	leaving := metav1.Time{Time: time.Unix(300, 0)}
	done.DeletionTimestamp = &leaving
	done.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "job", Controller: new(true)}}
	done.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{
		Terminated: &v1.ContainerStateTerminated{Reason: "Error", ExitCode: 1, FinishedAt: metav1.Time{Time: time.Unix(200, 0)}},
	}}}}
	m.Watch(machine{pods: []v1.Pod{reported(), done}})
	of := `namespace="default",pod="web-n"`
	a := `{container="a",` + of
	text := scrape(t, m)
	if strings.Contains(text, "\nkube_pod_status_ready_time{") {
		t.Error("a pod that is not ready has the time when it became ready")
	}
	wantLines(t, text,
		`kube_pod_owner{namespace="default",owner_is_controller="true",owner_kind="Job",owner_name="job",pod="job-n",uid="u2"} 1`,
		`kube_pod_owner{namespace="default",owner_is_controller="",owner_kind="",owner_name="",pod="web-n",uid="u1"} 1`,
		`kube_pod_deletion_timestamp{namespace="default",pod="job-n",uid="u2"} 300`,
		`kube_pod_ips{ip="10.88.0.2",ip_family="4",`+of+`,uid="u1"} 1`, `kube_pod_ips{ip="fd00::2",ip_family="6",`+of+`,uid="u1"} 1`,
		`kube_pod_runtimeclass_name_info{`+of+`,runtimeclass_name="gvisor",uid="u1"} 1`,
		`kube_pod_spec_volumes_persistentvolumeclaims_info{namespace="default",persistentvolumeclaim="store",pod="web-n",uid="u1",volume="data"} 1`,
		`kube_pod_spec_volumes_persistentvolumeclaims_readonly{namespace="default",persistentvolumeclaim="store",pod="web-n",uid="u1",volume="data"} 1`,
		`kube_pod_status_scheduled{condition="true",`+of+`,uid="u1"} 1`, `kube_pod_status_scheduled{condition="false",`+of+`,uid="u1"} 0`,
		`kube_pod_status_scheduled_time{`+of+`,uid="u1"} 99`, `kube_pod_status_initialized_time{`+of+`,uid="u1"} 102`,
		`kube_pod_status_container_ready_time{`+of+`,uid="u1"} 103`,
		`kube_pod_info{created_by_kind="",created_by_name="",host_ip="10.0.0.1",host_network="false",`+
			`namespace="default",node="n",pod="web-n",pod_ip="10.88.0.2",priority_class="system-node-critical",uid="u1"} 1`,
		`kube_pod_created{`+of+`,uid="u1"} 99`, `kube_pod_start_time{`+of+`,uid="u1"} 100`,
		`kube_pod_completion_time{namespace="default",pod="job-n",uid="u2"} 200`,
		`kube_pod_restart_policy{`+of+`,type="Always",uid="u1"} 1`,
		`kube_pod_status_phase{`+of[:len(of)-len(`,pod="web-n"`)]+`,phase="Running",pod="web-n",uid="u1"} 1`,
		`kube_pod_status_phase{namespace="default",phase="Pending",pod="web-n",uid="u1"} 0`,
		`kube_pod_status_ready{condition="false",`+of+`,uid="u1"} 1`, `kube_pod_status_ready{condition="true",`+of+`,uid="u1"} 0`,
		`kube_pod_status_qos_class{`+of+`,qos_class="Burstable",uid="u1"} 1`,
		`kube_pod_status_reason{namespace="default",pod="job-n",reason="Evicted",uid="u2"} 1`,
		`kube_pod_container_info{container="a",container_id="containerd://x",image="docker.io/library/app:latest",`+
			`image_id="sha256:1",image_spec="app",`+of+`,uid="u1"} 1`,
		`kube_pod_container_status_ready`+a+`,uid="u1"} 0`, `kube_pod_container_status_ready{container="b",`+of+`,uid="u1"} 1`,
		`kube_pod_container_status_restarts_total`+a+`,uid="u1"} 3`,
		`kube_pod_container_status_running{container="b",`+of+`,uid="u1"} 1`, `kube_pod_container_status_waiting`+a+`,uid="u1"} 1`,
		`kube_pod_container_status_waiting_reason`+a+`,reason="CrashLoopBackOff",uid="u1"} 1`,
		`kube_pod_container_status_terminated_reason{container="c",namespace="default",pod="job-n",reason="Error",uid="u2"} 1`,
		`kube_pod_container_status_last_terminated_reason`+a+`,reason="OOMKilled",uid="u1"} 1`,
		`kube_pod_container_status_last_terminated_exitcode`+a+`,uid="u1"} 137`,
		`kube_pod_container_status_last_terminated_timestamp`+a+`,uid="u1"} 105`,
		`kube_pod_container_state_started{container="b",`+of+`,uid="u1"} 103`,
		`kube_pod_init_container_status_terminated_reason{container="i",`+of+`,reason="Completed",uid="u1"} 1`,
		`kube_pod_container_resource_requests{container="a",namespace="default",node="n",pod="web-n",resource="cpu",uid="u1",unit="core"} 0.25`,
		`kube_pod_container_resource_requests{container="a",namespace="default",node="n",pod="web-n",resource="hugepages_2Mi",uid="u1",unit="byte"} 4.194304e+06`,
		`kube_pod_container_resource_limits{container="a",namespace="default",node="n",pod="web-n",resource="memory",uid="u1",unit="byte"} 6.7108864e+07`,
		`kube_pod_container_resource_limits{container="a",namespace="default",node="n",pod="web-n",resource="example_com_gpu",uid="u1",unit="integer"} 2`)
}

// promtool has Prometheus' own tool judge a scrape.
func promtool(t *testing.T, text string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: apt-get install prometheus")
	}
	c := exec.Command(path, "check", "metrics")
	c.Stdin = strings.NewReader(text)
	if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

func TestPromtool(t *testing.T) {
	t.Parallel()
	m := New(slog.New(slog.DiscardHandler))
	m.Watch(machine{pods: []v1.Pod{reported()}})
	promtool(t, scrape(t, m))
}
