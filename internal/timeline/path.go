package timeline

import "time"

// idle is how long nothing may happen within one run: what came before is another one.
const idle = time.Minute

// LastRun returns the spans of the last run: those after the last minute in which nothing happened. That a container
// waits or is tried again makes no run, so that one that is never well hides no idle minute. all are in the order of
// their begin; now is the end of what goes on.
func LastRun(all []Span, now time.Time) []Span {
	from, last := 0, time.Time{}
	again := retry{now, map[containerKey]time.Time{}}
	for i, s := range all {
		if again.is(&s) || s.Kind == Waiting {
			continue
		}
		if !last.IsZero() && s.Begin.Sub(last) >= idle {
			from = i
			for from > 0 && all[from-1].Kind == Waiting && s.Begin.Sub(all[from-1].Begin) < idle {
				from-- // what this run began with
			}
		}
		if end := s.until(now); end.After(last) {
			last = end
		}
	}
	return all[from:]
}

// Path marks the critical path: it goes back from the end of what ended last to what had ended last when that began,
// and so on to the begin. Where nothing was done in between, the longest waiting there is marked. now is the end of
// what goes on.
func Path(all []Span, now time.Time) {
	at := -1
	for i := range all {
		all[i].Critical = false
		if all[i].Kind != Waiting && (at < 0 || all[i].until(now).After(all[at].until(now))) {
			at = i
		}
	}
	for at >= 0 {
		all[at].Critical = true
		begin, before := all[at].Begin, -1
		for i, s := range all {
			if s.Kind == Waiting || s.Critical || s.until(now).After(begin) && !leads(s, all[at]) {
				continue
			}
			if before < 0 || s.until(now).After(all[before].until(now)) {
				before = i
			}
		}
		from := time.Time{}
		if before >= 0 {
			from = all[before].until(now)
		}
		markWait(all, from, begin, now)
		at = before
	}
}

// leads reports that s led to next although it ended later: the start of a container ends a little after what it starts
// has begun, and the end of a back-off is seen a little after it.
func leads(s, next Span) bool {
	if s.key() != next.key() || s.Container != next.Container || s.Begin.After(next.Begin) || s.End == nil {
		return false
	}
	return s.Kind == Start && (next.Kind == Run || next.Kind == Probe) && !next.Begin.After(*s.End) ||
		s.Kind == Backoff && s.End.Sub(next.Begin) < gap
}

// gap is the shortest time of waiting that is marked: a shorter one is the work of podrun between two actions.
const gap = 50 * time.Millisecond

// markWait marks the span of waiting that covers most of the time between from and to.
func markWait(all []Span, from, to, now time.Time) {
	best, most := -1, gap
	for i, s := range all {
		if s.Kind != Waiting {
			continue
		}
		begin, end := later(s.Begin, from), s.until(now)
		if end.After(to) {
			end = to
		}
		if d := end.Sub(begin); d >= most && (best < 0 || d > most) {
			best, most = i, d
		}
	}
	if best >= 0 {
		all[best].Critical = true
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// until returns the end of a span, which is now if it goes on.
func (s Span) until(now time.Time) time.Time {
	if s.End == nil {
		return later(now, s.Begin)
	}
	return *s.End
}
