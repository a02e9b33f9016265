package history

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"podrun.io/podrun/internal/stats"
)

// Minutes is how many minutes are kept of a pod.
const Minutes = int(Kept * Every / time.Minute)

// perMinute is how many samples a minute has.
const perMinute = int64(time.Minute / Every)

// PodSeries is what a pod has used, minute by minute, the last is the newest. A value is negative if it is not known.
type PodSeries struct {
	Of
	// Throttled is in milliseconds a second, Received and Sent in bytes a second, and Disk in bytes.
	Throttled, Received, Sent, Disk []float64
}

// minutes has the values of a pod, in some 500 bytes. The minute with the number n is at n modulo Minutes.
type minutes struct {
	throttled, received, sent, disk [Minutes]code
	last                            int64 // the number of the newest minute
	before                          stats.Total
	at                              time.Time // of before
}

// addPods takes a sample of the pods in a minute, and forgets what has none left.
func (h *History) addPods(all []stats.Total, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := number(now) / perMinute
	for _, t := range all {
		of := Of{Namespace: t.Pod.Namespace, Pod: t.Pod.Name, UID: string(t.UID)}
		m := h.pods[of]
		if m == nil {
			m = &minutes{last: n - int64(Minutes)}
			h.pods[of] = m
		}
		m.put(n, t, now)
	}
	for of, m := range h.pods {
		if m.last <= n-int64(Minutes) || m.last > n { // or the clock was set back
			delete(h.pods, of)
		}
	}
}

// put adds the minute with number n. Those between it and the one before are missing.
func (m *minutes) put(n int64, now stats.Total, at time.Time) {
	if n < m.last { // the clock was set back
		*m = minutes{last: n - int64(Minutes)}
	}
	for i := max(m.last+1, n-int64(Minutes)+1); i <= n; i++ {
		i := i % int64(Minutes)
		m.throttled[i], m.received[i], m.sent[i], m.disk[i] = 0, 0, 0, 0
	}
	i, over := n%int64(Minutes), at.Sub(m.at)
	if !m.at.IsZero() && over > 0 && over <= 3*time.Minute { // else what was used since says nothing
		rate := func(before, now uint64) code {
			if now < before { // a container has started again
				return 0
			}
			return encode(uint64(float64(now-before) / over.Seconds()))
		}
		m.throttled[i] = rate(uint64(m.before.Throttled.Microseconds()), uint64(now.Throttled.Microseconds()))
		if now.Network && m.before.Network {
			m.received[i], m.sent[i] = rate(m.before.Received, now.Received), rate(m.before.Sent, now.Sent)
		}
	}
	if now.Disk >= 0 {
		m.disk[i] = encode(uint64(now.Disk))
	}
	m.last, m.before, m.at = n, now, at
}

// Pods returns the series of the last hour of all pods for which is says so, sorted. Who calls it looks.
func (h *History) Pods(is func(Of) bool) (all []PodSeries) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watch()
	return h.podsOf(is)
}

// podsOf returns the pods' series for which is says so. The caller holds mu.
func (h *History) podsOf(is func(Of) bool) (all []PodSeries) {
	newest := h.newest / perMinute
	for of, m := range h.pods {
		if is(of) {
			all = append(all, m.series(of, newest))
		}
	}
	slices.SortFunc(all, func(a, b PodSeries) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod),
			strings.Compare(a.UID, b.UID))
	})
	return all
}

// series returns the minutes until that with the number newest.
func (m *minutes) series(of Of, newest int64) PodSeries {
	values := func(all *[Minutes]code, unit float64) (out []float64) {
		for n := newest - int64(Minutes) + 1; n <= newest; n++ {
			v := -1.0
			if n >= 0 && n <= m.last && n > m.last-int64(Minutes) {
				v = all[n%int64(Minutes)].value()
			}
			if v > 0 {
				v *= unit
			}
			out = append(out, v)
		}
		return out
	}
	return PodSeries{of, values(&m.throttled, 1e-3), values(&m.received, 1), values(&m.sent, 1), values(&m.disk, 1)}
}
