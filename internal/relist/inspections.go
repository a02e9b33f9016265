package relist

import (
	"slices"
	"sync"
	"time"

	"podrun.io/podrun/internal/pod"
)

// maxInspections limits the inspections, requested by events, that run at the same time. It is
// meant for many pods that exit at once. A runtime that hangs for that many pods hangs for all.
const maxInspections = 32

// inspections runs the inspections that events request, one at a time for each pod. All fields and
// methods but inspect are used by Run's goroutine only.
type inspections struct {
	inspect func(pod.Key)
	going   map[pod.Key]bool // true: another wakeup came after the inspection began
	next    []pod.Key        // pods that wait for a free slot
	done    chan pod.Key
	all     sync.WaitGroup
}

func newInspections(look func(pod.Key)) *inspections {
	return &inspections{inspect: look, going: map[pod.Key]bool{}, done: make(chan pod.Key, maxInspections)}
}

// ask requests an inspection that begins after now.
func (l *inspections) ask(key pod.Key) {
	if _, going := l.going[key]; going {
		l.going[key] = true
		return
	}
	if len(l.going) >= maxInspections {
		if !slices.Contains(l.next, key) {
			l.next = append(l.next, key)
		}
		return
	}
	l.going[key] = false
	l.all.Go(func() {
		l.inspect(key)
		l.done <- key // buffered for all that can be running
	})
}

// end records that an inspection has finished, and starts the next ones that are waiting.
func (l *inspections) end(key pod.Key) {
	again := l.going[key]
	delete(l.going, key)
	if again {
		l.ask(key)
	}
	if next := l.next; len(next) > 0 && len(l.going) < maxInspections {
		l.next = next[1:]
		l.ask(next[0])
	}
}

func (l *inspections) wait() { l.all.Wait() }

// schedule computes when the next full list begins. Lists do not overlap.
type schedule struct {
	timer *time.Timer
	at    time.Time // what the timer is set to; zero if it is not
	going bool
	again bool // another list became due while one was running
}

// newSchedule returns a schedule whose first list is due at once.
func newSchedule() *schedule {
	return &schedule{timer: time.NewTimer(0), at: time.Now()}
}

func (s *schedule) due() <-chan time.Time { return s.timer.C }

func (s *schedule) stop() { s.timer.Stop() }

// begin records that a list is due and reports whether it may begin now. If a list is running,
// another one follows it.
func (s *schedule) begin() bool {
	s.at, s.again = time.Time{}, s.going
	began := !s.going
	s.going = true
	return began
}

// end records that the list has finished; the next one begins after d at the latest.
func (s *schedule) end(d time.Duration) {
	if s.again {
		d = 0
	}
	s.going, s.again = false, false
	s.within(d)
}

// within requests a list that begins after now, and after d at the latest.
func (s *schedule) within(d time.Duration) {
	if s.at.IsZero() || time.Until(s.at) > d {
		s.at = time.Now().Add(d)
		s.timer.Reset(d)
	}
}
