package manifest

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// PodProblems maps pods to the problems that concern them.
type PodProblems struct {
	origins map[Origin][]Problem
	keys    map[pod.Key][]Problem
}

// PodProblems returns the problems by origin and by pod. A file is used as a whole, so each problem of a
// file concerns all its pods; but the problem that a pod is defined a second time concerns only
// that pod.
func (d Desired) PodProblems() PodProblems {
	b := PodProblems{origins: map[Origin][]Problem{}, keys: map[pod.Key][]Problem{}}
	for _, p := range d.Problems {
		var twice *DuplicateError
		if !errors.As(p.Err, &twice) {
			b.origins[p.Origin] = append(b.origins[p.Origin], p)
		}
		if p.Key != (pod.Key{}) {
			b.keys[p.Key] = append(b.keys[p.Key], p)
		}
	}
	return b
}

// Of returns the errors that concern p's manifest, one a line and at most ten; "" if there are
// none. Those of p come first, and those of other pods in its file last, named as such.
func (b PodProblems) Of(p *v1.Pod) string {
	from := OriginOf(p)
	var errs, others []error
	keys := keysOf(p)
	for _, key := range keys {
		for _, problem := range b.keys[key] {
			errs = append(errs, problem.Err)
		}
	}
	for _, problem := range b.origins[from] {
		switch {
		case slices.Contains(keys, problem.Key): // it is one of b.keys
		case problem.Key == pod.Key{}:
			errs = append(errs, problem.Err)
		default:
			for line := range strings.SplitSeq(problem.Err.Error(), "\n") {
				others = append(others, errors.New("another pod of its file: "+line))
			}
		}
	}
	errs = append(errs, others...)
	if filepath.IsAbs(from.Path) { // what is wrong with its directory
		for _, problem := range b.origins[Origin{Source: from.Source, Path: filepath.Dir(from.Path)}] {
			errs = append(errs, problem.Err)
		}
	}
	if len(errs) == 0 {
		return ""
	}
	const most = 10
	lines := strings.Split(errors.Join(errs...).Error(), "\n")
	if len(lines) > most {
		lines = append(lines[:most], fmt.Sprintf("and %d more", len(lines)-most))
	}
	return strings.Join(lines, "\n")
}
