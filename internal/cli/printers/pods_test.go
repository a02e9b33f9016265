package printers

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSummary(t *testing.T) {
	t.Parallel()
	yes, always := true, v1.ContainerRestartPolicyAlways
	waiting := func(reason string) v1.ContainerStatus {
		return v1.ContainerStatus{State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}}
	}
	ended := func(code int32, reason string) v1.ContainerStatus {
		return v1.ContainerStatus{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: reason}}}
	}
	running := v1.ContainerStatus{Ready: true, Started: &yes, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
	proxy := running
	proxy.Name, proxy.RestartCount = "proxy", 2
	ready := v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue}
	initialized := v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue}
	is := func(phase v1.PodPhase, containers ...v1.ContainerStatus) v1.PodStatus {
		return v1.PodStatus{Phase: phase, ContainerStatuses: containers}
	}
	for _, c := range []struct {
		name     string
		status   v1.PodStatus
		deleting bool
		want     string
	}{
		{name: "pending", status: is("Pending", waiting("ContainerCreating")), want: "ContainerCreating 0/2 0"},
		{name: "no containers seen", status: is("Pending"), want: "Pending 0/2 0"},
		{name: "running", status: is("Running", running, running), want: "Running 2/2 0"},
		{name: "one loops", status: is("Running", running, waiting("CrashLoopBackOff")), want: "CrashLoopBackOff 1/2 0"},
		{name: "error", status: is("Running", ended(1, "Error"), running), want: "Error 1/2 0"},
		{name: "code only", status: is("Failed", ended(3, "")), want: "ExitCode:3 0/2 0"},
		{name: "one has completed", status: is("Running", ended(0, "Completed"), running), want: "NotReady 1/2 0"},
		{name: "one has completed, ready", status: v1.PodStatus{Phase: "Running", Conditions: []v1.PodCondition{ready},
			ContainerStatuses: []v1.ContainerStatus{ended(0, "Completed"), running}}, want: "Running 1/2 0"},
		{name: "pod's reason", status: v1.PodStatus{Phase: "Failed", Reason: "DeadlineExceeded"}, want: "DeadlineExceeded 0/2 0"},
		{name: "evicted", status: v1.PodStatus{Phase: "Failed", Reason: "Evicted", ContainerStatuses: []v1.ContainerStatus{ended(0, "Completed")}}, want: "Evicted 0/2 0"},
		{name: "waits as a whole", status: v1.PodStatus{Phase: "Pending", Reason: "NodeAffinity", InitContainerStatuses: []v1.ContainerStatus{waiting("PodInitializing")}},
			want: "NodeAffinity 0/2 0"},
		{name: "terminating", status: is("Running", running), deleting: true, want: "Terminating 1/2 0"},
		{name: "init", status: v1.PodStatus{Phase: "Pending", InitContainerStatuses: []v1.ContainerStatus{running}}, want: "Init:0/2 0/2 0"},
		{name: "second init", status: v1.PodStatus{Phase: "Pending",
			InitContainerStatuses: []v1.ContainerStatus{ended(0, "Completed"), waiting("PodInitializing")}}, want: "Init:1/2 0/2 0"},
		{name: "init fails", status: v1.PodStatus{Phase: "Pending", InitContainerStatuses: []v1.ContainerStatus{ended(1, "Error")}}, want: "Init:Error 0/2 0"},
		{name: "init code", status: v1.PodStatus{Phase: "Pending", InitContainerStatuses: []v1.ContainerStatus{ended(4, "")}}, want: "Init:ExitCode:4 0/2 0"},
		{name: "init loops", status: v1.PodStatus{Phase: "Pending", InitContainerStatuses: []v1.ContainerStatus{waiting("CrashLoopBackOff")}}, want: "Init:CrashLoopBackOff 0/2 0"},
		{name: "sidecar", status: v1.PodStatus{Phase: "Running", Conditions: []v1.PodCondition{initialized},
			InitContainerStatuses: []v1.ContainerStatus{proxy}, ContainerStatuses: []v1.ContainerStatus{running, running}}, want: "Running 3/3 2"},
	} {
		p := &v1.Pod{Status: c.status, Spec: v1.PodSpec{InitContainers: []v1.Container{{Name: "a"}, {Name: "b"}},
			Containers: []v1.Container{{Name: "c"}, {Name: "d"}}}}
		if c.name == "sidecar" {
			p.Spec.InitContainers = []v1.Container{{Name: "proxy", RestartPolicy: &always}}
		}
		if c.deleting {
			p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}
		row := columns{}.row(p, time.Now())
		if got := row[2] + " " + row[1] + " " + row[3]; got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}
