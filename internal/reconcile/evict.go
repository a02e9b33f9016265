package reconcile

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// measurePeriod is how often the disk usage of pods with disk limits is measured, as in the
// kubelet.
const measurePeriod = 10 * time.Second

// measurement measures the disk usage of one pod and evicts the pod if it exceeds its limits. It
// measures in its own goroutine, because it reads as many directories as the pod has created.
type measurement struct {
	disk   Disk
	data   runtime.Data
	beside *sync.WaitGroup
	log    *slog.Logger
	done   chan measured

	of      *v1.Pod // the pod that the fields below belong to
	limited bool
	why     string // why the pod is evicted; "" if it is not
	at      time.Time
	live    bool // an instance of the pod runs
	running bool // a measurement is in progress
	cancel  context.CancelFunc
}

// measured is the result of a measurement.
type measured struct {
	of   *v1.Pod
	used pod.Usage
	err  error
}

func newMeasurement(disk Disk, data runtime.Data, beside *sync.WaitGroup, log *slog.Logger) *measurement {
	return &measurement{
		disk: disk, data: data, beside: beside, log: log, done: make(chan measured), cancel: func() {},
	}
}

// reset cancels the measurement of the current pod and starts from the beginning with p.
func (m *measurement) reset(p *v1.Pod) {
	m.cancel()
	m.of, m.limited, m.cancel = p, p != nil && pod.StorageLimitsOf(p).Any(), func() {}
	m.why, m.at, m.live, m.running = "", time.Time{}, false, false
}

// start starts a measurement of pod p if the pod has disk limits and a measurement is due.
// It does not measure a pod without running instances, nor one that is already evicted.
func (m *measurement) start(ctx context.Context, p *v1.Pod, seen pod.Observed) {
	if m.of != p {
		m.reset(p)
	}
	if !m.limited {
		return
	}
	var err error
	if m.why, err = m.data.Evicted(p.UID); err != nil {
		m.log.Warn("reading whether the pod was evicted failed", "err", err)
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
	m.beside.Go(func() {
		defer cancel()
		used, err := m.disk.Measure(mctx, p, instances)
		select {
		case m.done <- measured{of: p, used: used, err: err}:
		case <-mctx.Done():
		}
	})
}

// finished evicts the pod if the measurement exceeds its limits. It ignores the result of a pod
// that is no longer desired.
func (m *measurement) finished(r measured) {
	if m.of != r.of {
		return
	}
	m.running, m.at = false, time.Now()
	if r.err != nil {
		m.log.Warn("measuring the pod's disk usage failed", "err", r.err)
		return
	}
	why := plan.Exceeded(r.of, r.used)
	if why == "" {
		return
	}
	if err := m.data.Evict(r.of.UID, why); err != nil {
		m.log.Warn("saving the pod's eviction failed; retrying", "err", err)
	}
}

// next returns after what time the pod is to be measured; 0: never.
func (m *measurement) next() time.Duration {
	if !m.limited || !m.live || m.running || m.why != "" {
		return 0
	}
	return max(measurePeriod-time.Since(m.at), time.Millisecond)
}

// sooner returns the shorter of two waits, where 0 means no wait is due.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
