// Package history keeps what the machine and the containers of pods have used in the last hour: a ring of samples in
// memory. Samples are taken while somebody looks at them, and some minutes longer, so that an idle machine stays idle.
//
// Begin reading at History.Run.
package history

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	kubelet "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podrun.io/podrun/internal/stats"
)

const (
	// Every is the time between two samples, and Kept the number of samples that are kept.
	Every = 10 * time.Second
	Kept  = 360
	// longer is how long samples are taken after somebody has looked.
	longer = 5 * time.Minute
)

// Options are what a History is made of.
type Options struct {
	// Usage returns what is used now.
	Usage func(ctx context.Context) (*kubelet.Summary, error)
	// Pods returns what each pod has used in all, which is asked once a minute. nil: nothing is kept of it.
	Pods func(ctx context.Context) []stats.Total
	// Always takes samples even if nobody looks.
	Always bool
}

// History keeps samples. Its methods may be called concurrently.
type History struct {
	o       Options
	watched chan struct{} // somebody has looked; its capacity is 1

	mu     sync.Mutex
	looked time.Time
	newest int64 // the number of the newest sample
	series map[Of]*buffer
	pods   map[Of]*minutes
}

// Of is what a series is of: a container of a pod, or the machine if all is "".
type Of struct{ Namespace, Pod, UID, Container string }

// Series is what something has used, one sample after another, each Every after the one before. A sample is negative if
// it was not taken, or not possible. Both have the same number of samples, and the last is the newest.
type Series struct {
	Of
	// CPU is in thousandths of a processor, the mean since the sample before; Memory in bytes, without unused caches.
	CPU, Memory []float64
}

// New returns a History without samples.
func New(o Options) *History {
	return &History{o: o, watched: make(chan struct{}, 1), series: map[Of]*buffer{}, pods: map[Of]*minutes{}}
}

// Run takes samples until ctx ends.
func (h *History) Run(ctx context.Context) {
	minute := int64(-1) // of which the pods were asked last
	for ctx.Err() == nil {
		if !h.o.Always && !h.isWatched(time.Now()) {
			select {
			case <-ctx.Done():
				return
			case <-h.watched:
				continue
			}
		}
		if all, err := h.o.Usage(ctx); err == nil { // else the sample is missing
			h.add(all, time.Now())
		}
		if now := number(time.Now()) / perMinute; now != minute && h.o.Pods != nil {
			minute = now
			h.addPods(h.o.Pods(ctx), time.Now())
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(time.Unix(0, (number(time.Now())+1)*int64(Every)))):
		}
	}
}

// number is that of the sample of a time.
func number(at time.Time) int64 { return at.UnixNano() / int64(Every) }

// isWatched reports whether somebody has looked a short time ago.
func (h *History) isWatched(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now.Sub(h.looked) < longer
}

// add takes a sample, and forgets what has none left.
func (h *History) add(all *kubelet.Summary, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := number(now)
	h.newest = n
	h.put(Of{}, n, all.Node.CPU, all.Node.Memory)
	for _, p := range all.Pods {
		for _, c := range p.Containers {
			h.put(Of{p.PodRef.Namespace, p.PodRef.Name, p.PodRef.UID, c.Name}, n, c.CPU, c.Memory)
		}
	}
	for of, r := range h.series {
		if r.last <= h.newest-Kept || r.last > h.newest { // or the clock was set back
			delete(h.series, of)
		}
	}
}

// put adds a sample to a series.
func (h *History) put(of Of, n int64, cpu *kubelet.CPUStats, memory *kubelet.MemoryStats) {
	if cpu == nil || cpu.UsageCoreNanoSeconds == nil || memory == nil || memory.WorkingSetBytes == nil {
		return
	}
	r := h.series[of]
	if r == nil {
		r = &buffer{last: n - Kept}
		h.series[of] = r
	}
	r.put(n, total{*cpu.UsageCoreNanoSeconds, cpu.Time.Time}, *memory.WorkingSetBytes)
}

// Samples returns the series of the last hour of all for which is says so, sorted, and when the newest sample was
// taken. Who calls it looks: samples are taken from then on.
func (h *History) Samples(is func(Of) bool) (all []Series, newest time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	newest = h.watch()
	return h.samples(is), newest
}

// Hour returns what Samples and Pods do, of one moment.
func (h *History) Hour(is func(Of) bool) (all []Series, pods []PodSeries, newest time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	newest = h.watch()
	return h.samples(is), h.podsOf(is), newest
}

// samples returns the series for which is says so. The caller holds mu.
func (h *History) samples(is func(Of) bool) (all []Series) {
	for of, r := range h.series {
		if is(of) {
			all = append(all, r.series(of, h.newest))
		}
	}
	slices.SortFunc(all, func(a, b Series) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod),
			strings.Compare(a.UID, b.UID), strings.Compare(a.Container, b.Container))
	})
	return all
}

// Watch makes samples be taken for some minutes. It returns when the newest one was taken; zero: there is none.
func (h *History) Watch() (newest time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.watch()
}

// watch is Watch for a caller that holds mu.
func (h *History) watch() (newest time.Time) {
	h.looked = time.Now()
	select {
	case h.watched <- struct{}{}:
	default:
	}
	if h.newest == 0 {
		return newest
	}
	return time.Unix(0, h.newest*int64(Every))
}
