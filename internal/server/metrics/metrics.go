// Package metrics collects podrun's metrics and serves them in Prometheus' text format, under the
// kubelet's names where the meaning is the same. It observes package relist, and reads everything
// else from a [Node] when it is scraped. It is the only package that imports the Prometheus client.
//
// The package decides nothing. Begin reading at [Metrics] and its method Watch.
package metrics

import (
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"podrun.io/podrun/internal/relist"
	podruntime "podrun.io/podrun/internal/runtime"
)

// Metrics are the metrics of a podrun process. It implements relist.Observer.
type Metrics struct {
	registry *prometheus.Registry
	log      *slog.Logger

	interval, duration, inspection, latency prometheus.Histogram
	lastSeen, streamUp                      prometheus.Gauge
	relistErrors, connected, connectErrors  prometheus.Counter
	events                                  *prometheus.CounterVec

	began time.Time // beginning of the last list; used by Relisted only
}

// buckets returns histogram buckets in seconds, from the inspection of one pod to a runtime that
// hangs.
func buckets() []float64 {
	return []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30}
}

// New returns Metrics; Watch adds those that are read when scraped.
func New(log *slog.Logger) *Metrics {
	histogram := func(name, help string, more ...float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: append(buckets(), more...),
		})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(), log: log,
		interval: histogram("kubelet_pleg_relist_interval_seconds",
			"Time between the beginnings of two full lists of containers.", 60, 120), // of relist's longest, and of more
		duration:   histogram("kubelet_pleg_relist_duration_seconds", "Duration of a full list of containers."),
		inspection: histogram("kubelet_pleg_pod_relist_duration_seconds", "Duration of an inspection of one pod."),
		latency: histogram("kubelet_evented_pleg_connection_latency_seconds",
			"Time from an event of the container runtime until podrun received it."),
		lastSeen: gauge("kubelet_pleg_last_seen_seconds",
			"When the last successful full list began, in seconds since the epoch."),
		streamUp: gauge("podrun_evented_pleg_connected",
			"1 while the event stream of the container runtime is connected, 0 while podrun only polls."),
		relistErrors: counter("podrun_pleg_relist_errors_total",
			"Full lists that failed or could not inspect a pod, and inspections of one pod that failed."),
		connected: counter("podrun_evented_pleg_connections_total",
			"How often the event stream of the container runtime was connected."),
		connectErrors: counter("podrun_evented_pleg_connection_errors_total",
			"How often the event stream of the container runtime could not be connected, or broke."),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "podrun_pleg_events_total",
			Help: "Changes of pods that were observed, by type."}, []string{"type"}),
	}
	m.registry.MustRegister(m.interval, m.duration, m.inspection, m.latency, m.lastSeen, m.streamUp,
		m.relistErrors, m.connected, m.connectErrors, m.events, buildInfo(),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	// Created at once, so that a rate can be computed from the first event on.
	for kind := relist.Appeared; kind <= relist.Vanished; kind++ {
		m.events.WithLabelValues(kind.String())
	}
	return m
}

// Version returns podrun's version.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// buildInfo returns a gauge with the value 1 and the build information of the binary as labels.
func buildInfo() prometheus.Collector {
	commit := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = s.Value
			}
		}
	}
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "podrun_build_info", Help: "1; the labels are the version, commit and Go version of podrun.",
		ConstLabels: prometheus.Labels{"version": Version(), "commit": commit, "go_version": runtime.Version()},
	})
	g.Set(1)
	return g
}

// Handler returns the handler of scrapes. It serves a few at a time.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, ErrorLog: slog.NewLogLogger(m.log.Handler(), slog.LevelWarn),
		MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
	})
}

// Relisted implements relist.Observer.
func (m *Metrics) Relisted(began time.Time, took time.Duration, err error) {
	if !m.began.IsZero() {
		m.interval.Observe(began.Sub(m.began).Seconds())
	}
	m.began = began
	m.duration.Observe(took.Seconds())
	if err != nil {
		m.relistErrors.Inc()
	}
	if unknown := (*podruntime.UnknownError)(nil); err != nil && !errors.As(err, &unknown) {
		return
	}
	m.lastSeen.Set(float64(began.UnixNano()) / float64(time.Second))
}

// Inspected implements relist.Observer.
func (m *Metrics) Inspected(took time.Duration, err error) {
	m.inspection.Observe(took.Seconds())
	if err != nil {
		m.relistErrors.Inc()
	}
}

// Stream implements relist.Observer.
func (m *Metrics) Stream(up bool, _ error) {
	if up {
		m.connected.Inc()
		m.streamUp.Set(1)
		return
	}
	m.connectErrors.Inc()
	m.streamUp.Set(0)
}

// Notified implements relist.Observer.
func (m *Metrics) Notified(late time.Duration) { m.latency.Observe(max(late, 0).Seconds()) }

// Happened implements relist.Observer.
func (m *Metrics) Happened(kind relist.Kind) { m.events.WithLabelValues(kind.String()).Inc() }
