package metrics

import (
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/probe"
)

// Probes are the metrics of probes, under the names of the kubelet's /metrics/probes. It implements
// probe.Observer.
type Probes struct {
	registry *prometheus.Registry
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	log      *slog.Logger

	mu   sync.Mutex
	last map[pod.UID]map[Probe]Latest
}

// Probe is one of a container's probes: Startup, Liveness or Readiness.
type Probe struct{ Container, Type string }

// Latest is the last result of a probe, and since when it has had it without another.
type Latest struct {
	Result string
	Since  time.Time
}

// NewProbes returns Probes without any probe.
func NewProbes(log *slog.Logger) *Probes {
	p := &Probes{
		registry: prometheus.NewRegistry(), log: log, last: map[pod.UID]map[Probe]Latest{},
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "prober_probe_total", Help: "Runs of a container's probes, by result.",
		}, []string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "prober_probe_duration_seconds", Help: "Duration of a run of a container's probe.", Buckets: prometheus.DefBuckets,
		}, []string{"probe_type", "container", "pod", "namespace"}),
	}
	p.registry.MustRegister(p.total, p.duration)
	return p
}

// Handler returns the handler of scrapes.
func (p *Probes) Handler() http.Handler {
	return promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelWarn), MaxRequestsInFlight: 4,
	})
}

// Probed implements probe.Observer.
func (p *Probes) Probed(one probe.Probed) {
	name, namespace := one.Pod.Name, one.Pod.Namespace
	p.total.WithLabelValues(one.Type, one.Result, one.Container, name, namespace, string(one.UID)).Inc()
	p.duration.WithLabelValues(one.Type, one.Container, name, namespace).Observe(one.Duration.Seconds())
	p.mu.Lock()
	defer p.mu.Unlock()
	of, key := p.last[one.UID], Probe{one.Container, one.Type}
	if of == nil {
		of = map[Probe]Latest{}
		p.last[one.UID] = of
	}
	if of[key].Result != one.Result {
		of[key] = Latest{one.Result, time.Now()}
	}
}

// Last returns the last results of a pod's probes that have run.
func (p *Probes) Last(uid pod.UID) map[Probe]Latest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.last[uid])
}

// ForgotProbes implements probe.Observer.
func (p *Probes) ForgotProbes(key pod.Key, uid pod.UID) {
	p.total.DeletePartialMatch(prometheus.Labels{"pod_uid": string(uid)})
	p.duration.DeletePartialMatch(prometheus.Labels{"pod": key.Name, "namespace": key.Namespace})
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, uid)
}
