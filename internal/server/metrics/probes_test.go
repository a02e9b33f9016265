package metrics

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/probe"
)

var _ probe.Observer = (*Probes)(nil)

func TestProbes(t *testing.T) {
	t.Parallel()
	p := NewProbes(slog.New(slog.DiscardHandler))
	scrape := func() string {
		w := httptest.NewRecorder()
		p.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics/probes", nil))
		return "\n" + w.Body.String()
	}
	web := probe.Probed{
		Pod: pod.Key{Namespace: "default", Name: "web-n"}, UID: "u1", Container: "c", Type: "Liveness", Result: "successful", Duration: time.Second / 4,
	}
	other := web
	other.Pod.Name, other.UID, other.Result = "other-n", "u2", "failed"
	for _, one := range []probe.Probed{web, web, other} {
		p.Probed(one)
	}
	const of = `container="c",namespace="default",pod="web-n",`
	text := scrape()
	wantLines(t, text,
		`prober_probe_total{`+of+`pod_uid="u1",probe_type="Liveness",result="successful"} 2`,
		`prober_probe_total{container="c",namespace="default",pod="other-n",pod_uid="u2",probe_type="Liveness",result="failed"} 1`,
		`prober_probe_duration_seconds_bucket{`+of+`probe_type="Liveness",le="0.1"} 0`,
		`prober_probe_duration_seconds_bucket{`+of+`probe_type="Liveness",le="0.25"} 2`,
		`prober_probe_duration_seconds_sum{`+of+`probe_type="Liveness"} 0.5`)
	promtool(t, text)
	p.ForgotProbes(web.Pod, web.UID)
	if text = scrape(); strings.Contains(text, "web-n") || !strings.Contains(text, "other-n") {
		t.Error(text)
	}
}
