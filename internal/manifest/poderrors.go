package manifest

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// PodProblems maps pods to the problems that concern them.
type PodProblems struct {
	origins map[Origin][]error
	keys    map[pod.Key][]Problem
}

// PodProblems returns the problems by origin and by pod. A file is used as a whole, so each problem of a
// file concerns all its pods; but the problem that a pod is defined a second time concerns only
// that pod.
func (d Desired) PodProblems() PodProblems {
	b := PodProblems{origins: map[Origin][]error{}, keys: map[pod.Key][]Problem{}}
	for _, p := range d.Problems {
		var twice *DuplicateError
		if !errors.As(p.Err, &twice) {
			b.origins[p.Origin] = append(b.origins[p.Origin], p.Err)
		}
		if p.Key != (pod.Key{}) {
			b.keys[p.Key] = append(b.keys[p.Key], p)
		}
	}
	return b
}

// Of returns the errors that concern p's manifest, one a line and at most ten; "" if there are
// none.
func (b PodProblems) Of(p *v1.Pod) string {
	from := OriginOf(p)
	errs := append([]error{}, b.origins[from]...)
	for _, other := range b.keys[pod.KeyOf(p)] {
		if other.Origin != from {
			errs = append(errs, other.Err)
		}
	}
	if filepath.IsAbs(from.Path) { // what is wrong with its directory
		errs = append(errs, b.origins[Origin{Source: from.Source, Path: filepath.Dir(from.Path)}]...)
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
