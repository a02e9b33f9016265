package detail

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/revisions"
)

func get(port intstr.IntOrString, scheme v1.URIScheme) *v1.Probe {
	return &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: port, Scheme: scheme}}}
}

func TestPorts(t *testing.T) {
	t.Parallel()
	probed := get(intstr.FromString("admin"), "")
	secure := get(intstr.FromInt(9443), v1.URISchemeHTTPS)
	for _, c := range []struct {
		port     v1.ContainerPort
		probe    *v1.Probe
		own      bool // the machine's network
		host     string
		text, to string
	}{
		{v1.ContainerPort{ContainerPort: 80}, nil, false, "node", "80", ""},
		{v1.ContainerPort{ContainerPort: 80, HostPort: 8000}, nil, false, "node", "80 at the machine's 8000", "http://node:8000/"},
		{v1.ContainerPort{ContainerPort: 80, HostPort: 8000}, nil, false, "::1", "80 at the machine's 8000", "http://[::1]:8000/"},
		{v1.ContainerPort{ContainerPort: 80, HostPort: 8000}, nil, false, "", "80 at the machine's 8000", ""},
		{v1.ContainerPort{ContainerPort: 53, HostPort: 53, Protocol: v1.ProtocolUDP, Name: "http"}, nil, false, "node", "http 53/UDP at the machine's 53", ""},
		{v1.ContainerPort{ContainerPort: 5432, HostPort: 5432}, nil, false, "node", "5432 at the machine's 5432", ""},
		{v1.ContainerPort{ContainerPort: 443, Name: "postgres"}, nil, true, "node", "postgres 443", ""},
		{v1.ContainerPort{ContainerPort: 9000, Name: "http-alt"}, nil, true, "node", "http-alt 9000", "http://node:9000/"},
		{v1.ContainerPort{ContainerPort: 9000, Name: "https"}, nil, true, "node", "https 9000", "https://node:9000/"},
		{v1.ContainerPort{ContainerPort: 8443}, nil, true, "node", "8443", "https://node:8443/"},
		{v1.ContainerPort{ContainerPort: 9001, Name: "admin"}, probed, true, "node", "admin 9001", "http://node:9001/"},
		{v1.ContainerPort{ContainerPort: 9443}, secure, true, "node", "9443", "https://node:9443/"},
		{v1.ContainerPort{ContainerPort: 9444}, secure, true, "node", "9444", ""},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{HostNetwork: c.own}}
		got := Ports(p, &v1.Container{Ports: []v1.ContainerPort{c.port}, ReadinessProbe: c.probe}, c.host)
		if len(got) != 1 || got[0] != (Port{c.text, c.to}) {
			t.Errorf("%+v: %q, want %q %q", c.port, got, c.text, c.to)
		}
	}
}

func TestProbes(t *testing.T) {
	t.Parallel()
	c := &v1.Container{LivenessProbe: &v1.Probe{}, ReadinessProbe: &v1.Probe{}}
	got := Probes(c, func(probe string) (string, time.Time) {
		if probe == "Liveness" {
			return "failed", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		}
		return "", time.Time{}
	})
	if want := "[Liveness: failed since 2026-01-02 03:04:05Z Readiness: not run yet]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

func TestManifestOf(t *testing.T) {
	t.Parallel()
	of := func(image string) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-n", UID: pod.UID(image), Annotations: map[string]string{manifest.AnnotationManifestHash: image}},
			Spec:       v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Name: "c", Image: image}}},
		}
	}
	wanted, runs := of("new"), of("old\x1b")
	key := pod.KeyOf(wanted)
	d := manifest.Desired{Pods: map[pod.Key]*v1.Pod{key: wanted}}
	id := workload.ID{Kind: workload.Pod, Key: key}
	d.Revisions = map[workload.ID]*revisions.History{id: {
		Good: &revisions.Revision{ID: "aaaa"}, Tried: "bbbb", Began: time.Unix(9, 0),
		Past: []revisions.Outcome{{ID: "bbbb", Result: revisions.Superseded}, {ID: "aaaa", Result: revisions.Healthy, Ended: time.Unix(5, 0), Reason: "\x1b"}},
	}}
	m := NewManifests().Of(d, runs)
	if !strings.Contains(m.Text, "name: web\n") || !strings.Contains(m.Text, "image: new\n") || strings.Contains(m.Text, "manifest") {
		t.Errorf("%s", m.Text)
	}
	if len(m.Edits) != 1 || m.Edits[0].New != `"new"` || !strings.Contains(m.Edits[0].Old, "old") || strings.Contains(m.Edits[0].Old, "\x1b") || !strings.Contains(m.Edits[0].Field, "image") {
		t.Errorf("%q", m.Edits)
	}
	var lines []string
	for _, r := range m.Revisions {
		lines = append(lines, fmt.Sprint(r.ID, r.Result, r.Current, r.At.Unix(), r.Reason))
	}
	if got := strings.Join(lines, "\n"); !strings.HasPrefix(got, "bbbbProgressingtrue 9\naaaaHealthyfalse 5\\x1b\nbbbbSupersededfalse") {
		t.Error(got)
	}
	if m = NewManifests().Of(d, wanted); len(m.Edits) != 0 {
		t.Errorf("%q", m.Edits)
	}
	if m = NewManifests().Of(manifest.Desired{}, runs); m.Text != "" || m.Revisions != nil {
		t.Errorf("%+v", m)
	}
}
