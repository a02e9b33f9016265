// Package order finds pods that wait for each other to start. It is pure.
//
// Begin reading at Cycles.
package order

import (
	"maps"
	"slices"

	"podrun.io/podrun/internal/pod"
)

// Cycles returns the cycles of pods that start after each other, each in the order in which they wait. after has the
// pods that each one starts after; those that are not in it wait for none. A pod is in one cycle at most: of cycles
// that share pods some are left out, because there may be as many as the square of the number of pods.
func Cycles(after map[pod.Key][]pod.Key) [][]pod.Key {
	s := search{after: after, at: map[pod.Key]int{}}
	for _, key := range slices.SortedFunc(maps.Keys(after), pod.Key.Compare) {
		s.visit(key)
	}
	return s.cycles
}

// search is a depth-first search for cycles.
type search struct {
	after map[pod.Key][]pod.Key
	// at has the pods that were visited, with the place on the way to the current pod, or closed.
	at  map[pod.Key]int
	way []pod.Key
	// free has for each pod on the way the place from which on no pod, up to it, is in a cycle.
	free   []int
	cycles [][]pod.Key
}

const closed = -1

func (s *search) visit(key pod.Key) {
	after, waits := s.after[key]
	at, visited := s.at[key]
	switch {
	case !waits || visited && at == closed:
		return
	case visited:
		s.report(at)
		return
	}
	free := 0
	if n := len(s.way); n > 0 {
		free = s.free[n-1]
	}
	s.at[key], s.way, s.free = len(s.way), append(s.way, key), append(s.free, free)
	for _, next := range after {
		s.visit(next)
	}
	last := len(s.way) - 1
	s.at[key], s.way, s.free = closed, s.way[:last], s.free[:last]
}

// report reports that the current pod waits for the one at a place on the way, unless one of those between is
// reported already.
func (s *search) report(from int) {
	if from < s.free[len(s.way)-1] {
		return
	}
	for i := from; i < len(s.way); i++ {
		s.free[i] = i + 1
	}
	s.cycles = append(s.cycles, slices.Clone(s.way[from:]))
}
