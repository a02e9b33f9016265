package jobs

import "time"

// until returns when the next try may begin after failures.
func (d *decision) until(f Failures) time.Time {
	if f.Failed == 0 {
		return d.Now
	}
	delay := firstBackoff
	for n := 1; n < f.Failed && delay < maxBackoff; n++ {
		delay *= 2
	}
	return f.Last.Add(min(delay, maxBackoff))
}

func (f Failures) plus(one Failures) Failures {
	f.Tries, f.Failed, f.Count = f.Tries+one.Tries, f.Failed+one.Failed, f.Count+one.Count
	if one.Last.After(f.Last) {
		f.Last = one.Last
	}
	return f
}

// setBack begins a back-off anew that began later than now: the clock was set back.
func (h *History) setBack(now time.Time) {
	if h.Failures.Last.After(now) {
		h.Failures.Last = now
	}
	for i, f := range h.Indexes {
		if f.Last.After(now) {
			f.Last = now
			h.Indexes[i] = f
		}
	}
}
