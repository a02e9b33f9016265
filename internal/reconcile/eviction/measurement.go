// Package eviction measures the disk usage of one pod in a goroutine of its own, so that the pod's
// worker does not wait, and saves that the pod is evicted if it exceeds a limit. Whether it does is
// decided by storage.Exceeded; package plan terminates the pod, and package stats/disk measures.
//
// Begin reading with Measurement.Start.
package eviction

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan/storage"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// measurePeriod is how often the disk usage of pods with disk limits is measured, as in the
// kubelet.
const measurePeriod = 10 * time.Second

// Disk measures how much of the machine's disk pods use.
type Disk interface {
	// Measure returns p's usage of each resource that p has a disk limit for. instances are the
	// newest instances of its containers. Measure may take long.
	Measure(ctx context.Context, p *v1.Pod, instances []pod.Container) (pod.Usage, error)
}

// Measurement measures the disk usage of one pod and evicts the pod if it exceeds its limits. It
// measures in its own goroutine, because it reads as many directories as the pod has created.
type Measurement struct {
	disk       Disk
	data       runtime.Data
	goroutines *sync.WaitGroup
	log        *slog.Logger
	Done       chan Result

	of      *v1.Pod // the pod that the fields below belong to
	limited bool
	why     string // why the pod is evicted; "" if it is not
	unsaved string // why it is, as long as that could not be saved
	at      time.Time
	live    bool // an instance of the pod runs
	running bool // a measurement is in progress
	cancel  context.CancelFunc
}

// Result is the result of a measurement.
type Result struct {
	of   *v1.Pod
	used pod.Usage
	err  error
}

// New returns the Measurement of no pod yet. It starts goroutines in the group goroutines.
func New(disk Disk, data runtime.Data, goroutines *sync.WaitGroup, log *slog.Logger) *Measurement {
	return &Measurement{
		disk: disk, data: data, goroutines: goroutines, log: log, Done: make(chan Result), cancel: func() {},
	}
}

// Why returns why the pod is evicted; "" if it is not.
func (m *Measurement) Why() string { return m.why }

// Cancel cancels the measurement that is in progress.
func (m *Measurement) Cancel() { m.cancel() }

// Reset cancels the measurement of the current pod and starts from the beginning with p.
func (m *Measurement) Reset(p *v1.Pod) {
	m.cancel()
	m.of, m.limited, m.cancel = p, p != nil && pod.StorageLimitsOf(p).Any(), func() {}
	m.why, m.unsaved, m.at, m.live, m.running = "", "", time.Time{}, false, false
}

// same reports whether a measurement of one pod is one of the other: the pods of workloads are made anew each time that
// anything changes.
func same(a, b *v1.Pod) bool {
	return a == b || a != nil && b != nil && a.UID == b.UID &&
		reflect.DeepEqual(pod.StorageLimitsOf(a), pod.StorageLimitsOf(b))
}

// Start starts a measurement of pod p if the pod has disk limits and a measurement is due.
// It does not measure a pod without running instances, nor one that is already evicted.
func (m *Measurement) Start(ctx context.Context, p *v1.Pod, seen pod.Observed) {
	if !same(m.of, p) {
		m.Reset(p)
	}
	m.of = p
	if !m.limited {
		return
	}
	var err error
	if m.why, err = m.data.Evicted(p.UID); err != nil {
		m.log.Warn("reading whether the pod was evicted failed", "err", err)
	}
	if m.why == "" && m.unsaved != "" {
		m.why = m.unsaved
		m.save(p.UID)
	}
	if m.running || m.why != "" || time.Since(m.at) < measurePeriod {
		return
	}
	mine, _ := seen.Split(p.UID)
	m.live = false
	newest := map[string]pod.Container{}
	for _, c := range mine.Containers {
		m.live = m.live || c.State == pod.Running
		if had, ok := newest[c.Name]; !ok || c.Attempt > had.Attempt {
			newest[c.Name] = c
		}
	}
	if !m.live {
		return
	}
	instances := make([]pod.Container, 0, len(newest))
	for _, c := range newest {
		instances = append(instances, c)
	}
	mctx, cancel := context.WithCancel(ctx)
	m.running, m.at, m.cancel = true, time.Now(), cancel
	m.goroutines.Go(func() {
		defer cancel()
		used, err := m.disk.Measure(mctx, p, instances)
		select {
		case m.Done <- Result{of: p, used: used, err: err}:
		case <-mctx.Done():
		}
	})
}

// Finished evicts the pod if the measurement exceeds its limits. It ignores the result of a pod
// that is no longer desired.
func (m *Measurement) Finished(r Result) {
	if !same(m.of, r.of) {
		return
	}
	m.running, m.at = false, time.Now()
	if r.err != nil {
		m.log.Warn("measuring the pod's disk usage failed", "err", r.err)
		return
	}
	why := storage.Exceeded(r.of, r.used)
	if why == "" {
		return
	}
	m.unsaved = why
	m.save(r.of.UID)
}

// save saves that the pod is evicted. It is evicted also if it cannot be saved: it may be what fills the disk.
func (m *Measurement) save(uid pod.UID) {
	err := m.data.Evict(uid, m.unsaved)
	if err == nil {
		m.unsaved = ""
		return
	}
	m.log.Warn("saving the pod's eviction failed; retrying", "err", err)
}

// Next returns after what time the pod is to be measured; 0: never.
func (m *Measurement) Next() time.Duration {
	if !m.limited || !m.live || m.running || m.why != "" {
		return 0
	}
	return max(measurePeriod-time.Since(m.at), time.Millisecond)
}
