package relist

import (
	"slices"
	"sync"
	"time"

	"podrun.io/podrun/internal/pod"
)

// maxInspections is how many looks that rings asked for go on at once. It is for many pods that die at once; a runtime
// that hangs for so many pods hangs for all.
const maxInspections = 32

// inspections are those that rings asked for, one of each pod at a time. All but look belongs to Run.
type inspections struct {
	inspect func(pod.Key)
	going   map[pod.Key]bool // true: a ring came since it began
	next    []pod.Key        // wait for their turn
	done    chan pod.Key
	all     sync.WaitGroup
}

func newInspections(look func(pod.Key)) *inspections {
	return &inspections{inspect: look, going: map[pod.Key]bool{}, done: make(chan pod.Key, maxInspections)}
}

// ask asks for a look that begins after now.
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
		l.done <- key // has room for all that go on
	})
}

// end hears that a look has come to its end, and begins those that waited for it.
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

// schedule is when the next full list begins. Lists do not overlap.
type schedule struct {
	timer *time.Timer
	at    time.Time // what the timer is set to; zero if it is not
	going bool
	again bool // one was due while one went on
}

// newSchedule begins with a list at once.
func newSchedule() *schedule {
	return &schedule{timer: time.NewTimer(0), at: time.Now()}
}

func (s *schedule) due() <-chan time.Time { return s.timer.C }

func (s *schedule) stop() { s.timer.Stop() }

// begin says that a list is due. It begins unless one goes on; then another follows that.
func (s *schedule) begin() bool {
	s.at, s.again = time.Time{}, s.going
	began := !s.going
	s.going = true
	return began
}

// end says that the list has ended; the next begins in d at the latest.
func (s *schedule) end(d time.Duration) {
	if s.again {
		d = 0
	}
	s.going, s.again = false, false
	s.within(d)
}

// within asks for a list that begins after now, and in d at the latest.
func (s *schedule) within(d time.Duration) {
	if s.at.IsZero() || time.Until(s.at) > d {
		s.at = time.Now().Add(d)
		s.timer.Reset(d)
	}
}
