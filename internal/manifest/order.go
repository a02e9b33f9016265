package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// cycles returns Problems for the cycles of pods, and Jobs that are not complete, that wait for each other. The pods
// remain in the desired state, because those that run are not affected. A pod is in one Problem at most: of cycles that
// share pods some are left out, because there may be as many as the square of the annotations' size.
func cycles(d Desired) []Problem {
	s := cycleSearch{pods: maps.Clone(d.Pods), at: map[pod.Key]int{}}
	for _, w := range d.Workloads {
		key := pod.KeyOf(w.Template)
		if arrived, job := d.Arrived[key]; job && !arrived && s.pods[key] == nil {
			s.pods[key] = w.Template
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.pods), pod.Key.Compare) {
		s.visit(key)
	}
	return s.problems
}

// cycleSearch is a depth-first search for cycles.
type cycleSearch struct {
	pods map[pod.Key]*v1.Pod
	// at has the pods that were visited, with the place on the way to the current pod, or closed.
	at  map[pod.Key]int
	way []pod.Key
	// free has for each pod on the way the place from which on no pod, up to it, is in a problem.
	free     []int
	problems []Problem
}

const closed = -1

func (s *cycleSearch) visit(key pod.Key) {
	at, visited := s.at[key]
	switch {
	case s.pods[key] == nil || visited && at == closed:
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
	for _, next := range pod.After(s.pods[key]) {
		s.visit(next)
	}
	last := len(s.way) - 1
	s.at[key], s.way, s.free = closed, s.way[:last], s.free[:last]
}

// report reports that the current pod waits for the one at a place on the way, unless one of those between is
// reported already.
func (s *cycleSearch) report(from int) {
	if from < s.free[len(s.way)-1] {
		return
	}
	for i := from; i < len(s.way); i++ {
		s.free[i] = i + 1
	}
	s.problems = append(s.problems, cycle(s.pods, s.way[from:]))
}

func cycle(pods map[pod.Key]*v1.Pod, way []pod.Key) Problem {
	var names []string
	for _, key := range append(slices.Clone(way), way[0]) {
		names = append(names, key.String())
	}
	first := pods[way[0]]
	return Problem{Origin: OriginOf(first), Key: way[0], Err: &InvalidError{Errors: []FieldError{{
		File:  OriginOf(first).Path,
		Field: "metadata.annotations[" + pod.AnnotationAfter + "]",
		Key:   way[0],
		Message: fmt.Sprintf("Invalid value: %q: pods wait for each other: %s",
			first.Annotations[pod.AnnotationAfter], strings.Join(names, " after ")),
	}}}}
}
