package manifest

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Blame tells which problems concern a pod.
type Blame struct {
	origins map[Origin][]error
	keys    map[pod.Key][]Problem
}

// Blame sorts the problems by what they concern: a file is taken as a whole, so that all pods of it are
// concerned by whatever is wrong in it, but only the pod itself by another that has its name.
func (d Desired) Blame() Blame {
	b := Blame{origins: map[Origin][]error{}, keys: map[pod.Key][]Problem{}}
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

// Of returns what is wrong with p's manifest, an error a line and not endlessly many; empty if nothing.
func (b Blame) Of(p *v1.Pod) string {
	from := OriginOf(p)
	errs := append([]error{}, b.origins[from]...)
	for _, other := range b.keys[pod.KeyOf(p)] {
		if other.Origin != from {
			errs = append(errs, other.Err)
		}
	}
	if from.Source == SourceFile {
		errs = append(errs, b.origins[Origin{Source: SourceFile, Path: filepath.Dir(from.Path)}]...)
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
