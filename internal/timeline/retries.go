package timeline

import (
	"fmt"
	"time"

	"podrun.io/podrun/internal/pod"
)

// retry says which spans are of a container that is tried again: its back-offs, and what begins until a minute after
// one of them.
type retry struct {
	now   time.Time
	until map[containerKey]time.Time
}

// containerKey names a container of a pod.
type containerKey struct {
	pod       pod.Key
	container string
}

// is reports whether a span is of a retry. Spans must be asked for in the order of their begin.
func (r *retry) is(s *Span) bool {
	which := containerKey{s.key(), s.Container}
	if s.Kind == Backoff {
		r.until[which] = s.until(r.now).Add(idle)
		return true
	}
	return s.Begin.Before(r.until[which])
}

// WithoutRetries returns spans without what a container was tried again in between its first back-off and its last,
// whose detail has how many there were. all are in the order of their begin; now is the end of what goes on.
func WithoutRetries(all []Span, now time.Time) (out []Span) {
	last, backoffs := map[containerKey]int{}, map[containerKey]int{}
	for i, s := range all {
		if s.Kind == Backoff {
			last[containerKey{s.key(), s.Container}] = i
			backoffs[containerKey{s.key(), s.Container}]++
		}
	}
	again := retry{now, map[containerKey]time.Time{}}
	for i, s := range all {
		which := containerKey{s.key(), s.Container}
		if again.is(&s) && i < last[which] {
			continue
		}
		if n := backoffs[which] - 1; s.Kind == Backoff && n > 0 {
			s.Detail = fmt.Sprintf("(the last of %d) ", n+1) + s.Detail
		}
		out = append(out, s)
	}
	return out
}
