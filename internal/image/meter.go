package image

import (
	"sync"
	"time"

	"podrun.io/podrun/internal/pod"
)

// window is the period over which the transfer rate is measured.
const window = 3 * time.Second

// Meter measures the progress of one pull. Its methods may be called concurrently.
type Meter struct {
	mu    sync.Mutex
	blobs map[string]*blob
	// came is the number of bytes that were read from the registry, from which the rate is
	// computed.
	came    int64
	samples []sample
	// complete is when the last of the complete layers became so, and fetched is called with it.
	complete time.Time
	fetched  []func(time.Time)
}

type blob struct {
	size, at int64
	done     bool
}

type sample struct {
	at   time.Time
	came int64
}

// NewMeter returns a Meter for a pull that begins at now.
func NewMeter(now time.Time) *Meter {
	return &Meter{blobs: map[string]*blob{}, samples: []sample{{at: now}}}
}

// Expect adds a layer of the image, by its digest and its size in bytes.
func (m *Meter) Expect(digest string, size int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.blobs[digest] == nil {
		m.blobs[digest] = &blob{size: size}
	}
}

// At records that the first n bytes of a layer are present, and that came bytes more have just been
// read from the registry. Content that is not a layer is ignored.
func (m *Meter) At(digest string, n int64, came int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b := m.blobs[digest]; b != nil {
		b.at = min(n, b.size)
		m.came += int64(came)
	}
}

// Done records that a layer is complete.
func (m *Meter) Done(digest string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b := m.blobs[digest]; b != nil && !b.done {
		b.at, b.done = b.size, true
		m.complete = time.Now()
		m.report(m.fetched...)
	}
}

// OnFetched makes the meter call f as trace.Trace.Fetched is called. f must not call the meter.
func (m *Meter) OnFetched(f func(time.Time)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fetched = append(m.fetched, f)
	m.report(f)
}

// Pulled records that the image has been pulled. Layers that were not fetched were not needed: what is made of them was
// there.
func (m *Meter) Pulled() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.blobs {
		b.at, b.done = b.size, true
	}
	m.report(m.fetched...)
}

// report calls functions with when the layers became complete, if all are. The caller holds mu.
func (m *Meter) report(to ...func(time.Time)) {
	if m.complete.IsZero() {
		return
	}
	for _, b := range m.blobs {
		if !b.done {
			return
		}
	}
	for _, f := range to {
		f(m.complete)
	}
}

// Progress returns the progress at now.
func (m *Meter) Progress(now time.Time) pod.Progress {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := pod.Progress{Layers: len(m.blobs)}
	for _, b := range m.blobs {
		p.Fetched += b.at
		p.Total += b.size
		if b.done {
			p.Done++
		}
	}
	for len(m.samples) > 1 && now.Sub(m.samples[1].at) >= window {
		m.samples = m.samples[1:]
	}
	if over := now.Sub(m.samples[0].at); over > 0 {
		p.Rate = int64(float64(m.came-m.samples[0].came) / over.Seconds())
	}
	if last := m.samples[len(m.samples)-1]; now.Sub(last.at) >= window/16 {
		m.samples = append(m.samples, sample{now, m.came})
	}
	return p
}
