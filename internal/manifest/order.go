package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// cycles returns a Problem for each cycle of pods that wait for each other to start. The pods
// remain in the desired state, because those that run are not affected.
func cycles(pods map[pod.Key]*v1.Pod) []Problem {
	var problems []Problem
	const open, closed = 1, 2
	state := map[pod.Key]int{}
	var way []pod.Key
	var visit func(key pod.Key)
	visit = func(key pod.Key) {
		switch {
		case pods[key] == nil || state[key] == closed:
			return
		case state[key] == open:
			problems = append(problems, cycle(pods, way[slices.Index(way, key):]))
			return
		}
		state[key], way = open, append(way, key)
		for _, next := range pod.After(pods[key]) {
			visit(next)
		}
		state[key], way = closed, way[:len(way)-1]
	}
	for _, key := range slices.SortedFunc(maps.Keys(pods), pod.Key.Compare) {
		visit(key)
	}
	return problems
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
