package reconcile

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// measurePeriod is how often it is looked what pods with limits of the disk take, as the kubelet does.
const measurePeriod = 10 * time.Second

// measure is how far the worker is with what its pod takes of the disk. Measuring runs beside the worker,
// since it reads as many directories as the pod made.
type measure struct {
	of      *v1.Pod // whose what follows is
	limited bool
	why     string // it has to end
	at      time.Time
	live    bool // there is something to measure
	running bool // and it is done now
	cancel  context.CancelFunc
	done    chan measured
}

type measured struct {
	of   *v1.Pod
	used pod.Usage
	err  error
}

func newMeasure() measure { return measure{done: make(chan measured), cancel: func() {}} }

// measureDisk begins to measure the pod, if it has limits and it is time. One of which nothing lives is not
// measured, nor one of which it was said already that it has to end.
func (w *worker) measureDisk(ctx context.Context, seen pod.Observed) {
	m := &w.measure
	if m.of != w.pod {
		m.cancel()
		*m = measure{of: w.pod, limited: w.pod != nil && pod.StorageLimitsOf(w.pod).Any(), done: m.done, cancel: func() {}}
	}
	if !m.limited {
		return
	}
	var err error
	if m.why, err = w.o.Data.Evicted(w.pod.UID); err != nil {
		w.log.Warn("not known whether the pod was evicted", "why", err)
	}
	if m.running || m.why != "" || time.Since(m.at) < measurePeriod {
		return
	}
	mine, _ := seen.Split(w.pod.UID)
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
	of, done := w.pod, m.done
	w.beside.Go(func() {
		defer cancel()
		used, err := w.o.Disk.Measure(mctx, of, instances)
		select {
		case done <- measured{of: of, used: used, err: err}:
		case <-mctx.Done():
		}
	})
}

// keepMeasured judges what a measurement found, unless it is of what is not wanted any more.
func (w *worker) keepMeasured(r measured) {
	m := &w.measure
	if m.of != r.of {
		return
	}
	m.running, m.at = false, time.Now()
	if r.err != nil {
		w.log.Warn("what the pod takes of the disk is not known", "why", r.err)
		return
	}
	why := plan.Exceeded(r.of, r.used)
	if why == "" {
		return
	}
	if err := w.o.Data.Evict(r.of.UID, why); err != nil {
		w.log.Warn("trying again later", "why", err)
	}
}

// measureAgain is in how long the pod is to be measured; 0: never.
func (w *worker) measureAgain() time.Duration {
	m := &w.measure
	if !m.limited || !m.live || m.running || m.why != "" {
		return 0
	}
	return max(measurePeriod-time.Since(m.at), time.Millisecond)
}

// sooner is the shorter of two waits, of which 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
