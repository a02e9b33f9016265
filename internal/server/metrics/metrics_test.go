package metrics

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/gc"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/relist"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/status/plugins"
)

var _ relist.Observer = (*Metrics)(nil)

// machine is a Node that is filled by a test.
type machine struct {
	counts  relist.Counts
	desired manifest.Desired
	pods    []v1.Pod
	err     error

	plugins    []plugins.Plugin
	pluginsErr error
}

func (m machine) Counts() relist.Counts     { return m.counts }
func (m machine) Desired() manifest.Desired { return m.desired }
func (m machine) Disks() []gc.Usage {
	return []gc.Usage{{Name: "nodefs", Capacity: 1 << 30, Available: 1 << 20, Pressed: true}}
}
func (m machine) ImagesRemoved() map[string]int { return map[string]int{gc.ReasonAge: 3} }
func (m machine) Pods() ([]v1.Pod, error)       { return m.pods, m.err }

func (m machine) Plugins() ([]plugins.Plugin, error) { return m.plugins, m.pluginsErr }

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("got %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			name, _, _ := strings.Cut(line, " ")
			for have := range strings.Lines(text) {
				if strings.HasPrefix(have, name) {
					t.Logf("there is: %s", have)
				}
			}
			t.Errorf("no line %q", line)
		}
	}
}

func TestWhatRelistTells(t *testing.T) {
	m := New(slog.New(slog.DiscardHandler))
	start := time.Unix(1000, 500_000_000)
	m.Relisted(start.Add(-time.Second), 20*time.Millisecond, &runtime.UnknownError{Err: errors.New("hangs")})
	wantLines(t, scrape(t, m), "kubelet_pleg_last_seen_seconds 999.5", "podrun_pleg_relist_errors_total 1")
	m.Relisted(start, 3*time.Millisecond, nil)
	m.Relisted(start.Add(time.Second), 20*time.Millisecond, errors.New("away"))
	m.Inspected(time.Millisecond/4, nil)
	m.Inspected(time.Second, errors.New("away"))
	m.Stream(false, errors.New("refused"))
	m.Stream(true, nil)
	m.Notified(-time.Second) // the clock was set back
	m.Happened(relist.Died)
	m.Happened(relist.Died)
	wantLines(t, scrape(t, m),
		`kubelet_pleg_relist_interval_seconds_bucket{le="60"} 2`,
		`kubelet_pleg_relist_interval_seconds_bucket{le="120"} 2`,
		"kubelet_pleg_relist_interval_seconds_sum 2",
		"kubelet_pleg_relist_interval_seconds_count 2",
		"kubelet_pleg_relist_duration_seconds_sum 0.043",
		"kubelet_pleg_relist_duration_seconds_count 3",
		"kubelet_pleg_last_seen_seconds 1000.5",
		"kubelet_pleg_pod_relist_duration_seconds_count 2",
		"podrun_pleg_relist_errors_total 3",
		"podrun_evented_pleg_connections_total 1",
		"podrun_evented_pleg_connection_errors_total 1",
		"kubelet_evented_pleg_connection_latency_seconds_sum 0",
		"podrun_evented_pleg_connected 1",
		`podrun_pleg_events_total{type="died"} 2`,
		`podrun_pleg_events_total{type="started"} 0`)
	m.Stream(false, errors.New("broken"))
	wantLines(t, scrape(t, m), "podrun_evented_pleg_connected 0")
}

func TestWhatIsReadAtAScrape(t *testing.T) {
	m := New(slog.New(slog.DiscardHandler))
	web := v1.Pod{}
	web.Namespace, web.Name, web.UID = "default", "web-n", "u1"
	web.Status.ContainerStatuses = []v1.ContainerStatus{
		{Name: "a", RestartCount: 3},
		{Name: "b", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}},
	}
	file, url := manifest.Origin{Source: manifest.SourceFile, Path: "/a"}, manifest.Origin{Source: manifest.SourceHTTP, Path: "http://b"}
	m.Watch(machine{
		counts: relist.Counts{Pods: 2, Containers: map[pod.State]int{pod.Running: 3, pod.Exited: 1}},
		desired: manifest.Desired{
			Pods: map[pod.Key]*v1.Pod{{Name: "x"}: nil, {Name: "y"}: nil, {Name: "z"}: nil}, Complete: true,
			Problems: []manifest.Problem{{Origin: file}, {Origin: file}}, Warnings: []manifest.Problem{{Origin: url}},
		},
		pods: []v1.Pod{web},
	})
	text := scrape(t, m)
	wantLines(t, text,
		"kubelet_running_pods 2",
		`kubelet_running_containers{container_state="running"} 3`,
		`kubelet_running_containers{container_state="exited"} 1`,
		`kubelet_running_containers{container_state="unknown"} 0`,
		`kubelet_desired_pods{static="true"} 3`,
		"podrun_sources_ready 1",
		`podrun_manifest_problems{source="file"} 2`,
		`podrun_manifest_problems{source="http"} 0`,
		`podrun_manifest_warnings{source="http"} 1`,
		`kube_pod_container_status_restarts_total{container="a",namespace="default",pod="web-n",uid="u1"} 3`,
		`kube_pod_container_status_waiting_reason{container="b",namespace="default",pod="web-n",reason="CrashLoopBackOff",uid="u1"} 1`)
	if !strings.Contains(text, "\npodrun_build_info{") || !strings.Contains(text, "\nprocess_cpu_seconds_total ") || !strings.Contains(text, "\ngo_goroutines ") {
		t.Error("build, process or Go metrics are missing")
	}
}

// If statuses cannot be read, only their own metrics are missing.
func TestStatusesThatCannotBeRead(t *testing.T) {
	m := New(slog.New(slog.DiscardHandler))
	m.Watch(machine{err: errors.New("broken"), counts: relist.Counts{Pods: 2}})
	wantLines(t, scrape(t, m), "kubelet_running_pods 2", "podrun_sources_ready 0")
}

// podrun's own names follow Prometheus' rules; the kubelet's names are unchanged.
func TestNames(t *testing.T) {
	m := New(slog.New(slog.DiscardHandler))
	m.Watch(machine{})
	problems, err := promlint.New(strings.NewReader(scrape(t, m))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if !strings.HasPrefix(p.Metric, "kube") && !strings.HasPrefix(p.Metric, "go_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// The calls of relist every second cost almost nothing.
func BenchmarkObserve(b *testing.B) {
	m := New(slog.New(slog.DiscardHandler))
	now := time.Now()
	for b.Loop() {
		now = now.Add(time.Second)
		m.Relisted(now, time.Millisecond, nil)
	}
}
