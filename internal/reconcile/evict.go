package reconcile

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// measurePeriod is how often the disk usage of pods with disk limits is measured, as in the
// kubelet.
const measurePeriod = 10 * time.Second

// measure is the state of the measurement of the pod's disk usage. A measurement runs in its own
// goroutine, because it reads as many directories as the pod has created.
type measure struct {
	of      *v1.Pod // the pod that the fields below belong to
	limited bool
	why     string // why the pod is evicted; "" if it is not
	at      time.Time
	live    bool // an instance of the pod runs
	running bool // a measurement is in progress
	cancel  context.CancelFunc
	done    chan measured
}

type measured struct {
	of   *v1.Pod
	used pod.Usage
	err  error
}

func newMeasure() measure { return measure{done: make(chan measured), cancel: func() {}} }

// measureDisk starts a measurement of the pod if the pod has disk limits and a measurement is due.
// It does not measure a pod without running instances, nor one that is already evicted.
func (w *worker) measureDisk(ctx context.Context, seen pod.Observed) {
	m := &w.measure
	if m.of != w.state.pod {
		m.cancel()
		*m = measure{
			of:      w.state.pod,
			limited: w.state.pod != nil && pod.StorageLimitsOf(w.state.pod).Any(),
			done:    m.done,
			cancel:  func() {},
		}
	}
	if !m.limited {
		return
	}
	var err error
	if m.why, err = w.o.Data.Evicted(w.state.pod.UID); err != nil {
		w.log.Warn("reading whether the pod was evicted failed", "err", err)
	}
	if m.running || m.why != "" || time.Since(m.at) < measurePeriod {
		return
	}
	mine, _ := seen.Split(w.state.pod.UID)
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
	of, done := w.state.pod, m.done
	w.beside.Go(func() {
		defer cancel()
		used, err := w.o.Disk.Measure(mctx, of, instances)
		select {
		case done <- measured{of: of, used: used, err: err}:
		case <-mctx.Done():
		}
	})
}

// keepMeasured evicts the pod if the measurement exceeds its limits. It ignores the result of a pod
// that is no longer desired.
func (w *worker) keepMeasured(r measured) {
	m := &w.measure
	if m.of != r.of {
		return
	}
	m.running, m.at = false, time.Now()
	if r.err != nil {
		w.log.Warn("measuring the pod's disk usage failed", "err", r.err)
		return
	}
	why := plan.Exceeded(r.of, r.used)
	if why == "" {
		return
	}
	if err := w.o.Data.Evict(r.of.UID, why); err != nil {
		w.log.Warn("saving the pod's eviction failed; retrying", "err", err)
	}
}

// measureAgain returns after what time the pod is to be measured; 0: never.
func (w *worker) measureAgain() time.Duration {
	m := &w.measure
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
