package pod_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

func TestProbed(t *testing.T) {
	probe, yes, no := &v1.Probe{}, new(true), new(false)
	bare, startup, ready := &v1.Container{}, &v1.Container{StartupProbe: probe}, &v1.Container{ReadinessProbe: probe}
	for _, tt := range []struct {
		name             string
		c                *v1.Container
		p                pod.Probed
		isStarted, ready bool
	}{
		{"no probes", bare, pod.Probed{}, true, true},
		{"startup not known", startup, pod.Probed{}, false, false},
		{"startup failing", startup, pod.Probed{Started: no}, false, false},
		{"started", startup, pod.Probed{Started: yes}, true, true},
		{"readiness not known", ready, pod.Probed{}, true, false},
		{"unready", ready, pod.Probed{Ready: no}, true, false},
		{"ready", ready, pod.Probed{Ready: yes}, true, true},
		{"its postStart hook has failed", ready, pod.Probed{Ready: yes, Failed: &pod.Failed{Why: pod.ReasonPostStart}}, false, false},
		{"its liveness probe has failed", ready, pod.Probed{Ready: yes, Failed: &pod.Failed{Why: "failed liveness probe"}}, true, true},
		{"ready before it has started", &v1.Container{StartupProbe: probe, ReadinessProbe: probe}, pod.Probed{Ready: yes}, false, false},
	} {
		if got := tt.p.IsStarted(tt.c); got != tt.isStarted {
			t.Errorf("%s: started is %v", tt.name, got)
		}
		if got := tt.p.IsReady(tt.c); got != tt.ready {
			t.Errorf("%s: ready is %v", tt.name, got)
		}
	}
}

func TestSidecarOrder(t *testing.T) {
	p := &v1.Pod{}
	always := new(v1.ContainerRestartPolicyAlways)
	p.Spec.InitContainers = []v1.Container{{Name: "i"}, {Name: "s", RestartPolicy: always}}
	p.Spec.Containers = []v1.Container{{Name: "a", RestartPolicy: always}}
	for name, want := range map[string]int{"i": 0, "s": 2, "a": 0, "x": 0} {
		if got := pod.SidecarOrder(p, name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	if all := pod.AllContainers(p); len(all) != 3 || all[0] != &p.Spec.InitContainers[0] || all[2] != &p.Spec.Containers[0] {
		t.Errorf("all containers: %v", all)
	}
}
