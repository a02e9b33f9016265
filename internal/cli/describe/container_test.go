package describe

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/event"
)

// TestLastResult: the status says whether a probe succeeds; only events since the container started say why not.
func TestLastResult(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	failed := func(kind, container string, ago time.Duration) event.Record {
		return event.Record{Container: container, Reason: "Unhealthy", Message: kind + " probe failed: x", Last: now.Add(-ago)}
	}
	for name, c := range map[string]struct {
		kind           string
		started, ready bool
		records        []event.Record
		want           string
	}{
		"started up":           {"Startup", true, false, []event.Record{failed("Startup", "app", time.Second)}, "success"},
		"not yet":              {"Startup", false, false, nil, "none yet"},
		"ready":                {"Readiness", true, true, []event.Record{failed("Readiness", "app", time.Second)}, "success"},
		"not ready":            {"Readiness", true, false, []event.Record{failed("Readiness", "app", 2*time.Minute), failed("Readiness", "app", 9*time.Second)}, "9s ago: Readiness probe failed: x"},
		"starts up first":      {"Readiness", false, false, nil, "none: the container has not started up"},
		"another container's":  {"Readiness", true, false, []event.Record{failed("Readiness", "b", time.Second)}, "none yet"},
		"another probe's":      {"Liveness", true, false, []event.Record{failed("Readiness", "app", time.Second)}, "no failure since the container started"},
		"of an earlier start":  {"Liveness", true, true, []event.Record{failed("Liveness", "app", time.Hour)}, "no failure since the container started"},
		"failed since it runs": {"Liveness", true, true, []event.Record{failed("Liveness", "app", time.Minute)}, "no failure since the one 60s ago: Liveness probe failed: x"},
		"failed just now":      {"Liveness", true, true, []event.Record{failed("Liveness", "app", 20*time.Second)}, "20s ago: Liveness probe failed: x"},
	} {
		s := &v1.ContainerStatus{Name: "app", Started: &c.started, Ready: c.ready,
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-30 * time.Minute))}}}
		if got := lastResult(c.kind, &v1.Probe{PeriodSeconds: 10, TimeoutSeconds: 1}, s, c.records, now); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestLinesFitTerminals: nothing of a manifest controls the terminal, wherever it stands.
func TestLinesFitTerminals(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	d := &Printer{Out: &out}
	const evil = "\x1b[2J"
	c := v1.Container{
		Name: evil, Image: evil, Env: []v1.EnvVar{{Name: evil, Value: evil}}, Ports: []v1.ContainerPort{{Name: evil}},
		EnvFrom:      []v1.EnvFromSource{{Prefix: evil, SecretRef: &v1.SecretEnvSource{}}},
		VolumeMounts: []v1.VolumeMount{{Name: evil, MountPath: evil, SubPath: evil}}, VolumeDevices: []v1.VolumeDevice{{Name: evil, DevicePath: evil}},
		LivenessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{evil}}}},
	}
	d.container(c, nil)
	d.probes(c, nil, nil, time.Time{})
	d.environment(c)
	d.mounts(c)
	d.volumes(&v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{{Name: evil, VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: evil}}}}}})
	d.line(0, "Tolerations", tolerations([]v1.Toleration{{Key: evil}}))
	if strings.Contains(out.String(), "\x1b") || strings.Count(out.String(), "[2J") < 14 {
		t.Errorf("got %q", out.String())
	}
}
