package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podrun.io/podrun/internal/pod"
)

// AnnotationAfter has the pods that must have come to their result before this one starts, with commas
// between: the names of their manifests, each with its namespace and a slash in front if that is another.
const AnnotationAfter = "podrun.io/after"

// After returns the pods that p waits for before it starts.
func After(p *v1.Pod) []pod.Key {
	value, ok := p.Annotations[AnnotationAfter]
	if !ok {
		return nil
	}
	// All pods of a node are named alike.
	suffix := "-" + p.Spec.NodeName
	if !strings.HasSuffix(p.Name, suffix) {
		suffix = ""
	}
	var keys []pod.Key
	for _, name := range strings.Split(value, ",") {
		namespace, name, named := strings.Cut(strings.TrimSpace(name), "/")
		if !named {
			namespace, name = p.Namespace, namespace
		}
		keys = append(keys, pod.Key{Namespace: namespace, Name: name + suffix})
	}
	return keys
}

// validateAfter judges the form of the annotation.
func validateAfter(value string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range strings.Split(value, ",") {
		namespace, name, named := strings.Cut(strings.TrimSpace(name), "/")
		if !named {
			namespace, name = "default", namespace
		}
		bad := append(validation.IsDNS1123Label(namespace), validation.IsDNS1123Subdomain(name)...)
		if len(bad) > 0 {
			errs = append(errs, field.Invalid(path, value, "must be names of pods with commas between, each with a namespace and '/' in front if that is another"))
			break
		}
	}
	return errs
}

// circles reports pods that wait for each other, a problem a circle. They stay among the wanted ones: what
// runs is not concerned.
func circles(pods map[pod.Key]*v1.Pod) []Problem {
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
			problems = append(problems, circle(pods, way[slices.Index(way, key):]))
			return
		}
		state[key], way = open, append(way, key)
		for _, next := range After(pods[key]) {
			visit(next)
		}
		state[key], way = closed, way[:len(way)-1]
	}
	for _, key := range slices.SortedFunc(maps.Keys(pods), compareKeys) {
		visit(key)
	}
	return problems
}

func circle(pods map[pod.Key]*v1.Pod, way []pod.Key) Problem {
	var names []string
	for _, key := range append(slices.Clone(way), way[0]) {
		names = append(names, key.String())
	}
	first := pods[way[0]]
	return Problem{Origin: OriginOf(first), Key: way[0], Err: &InvalidError{Errors: []FieldError{{
		File: OriginOf(first).Path, Field: "metadata.annotations[" + AnnotationAfter + "]", Key: way[0],
		Message: fmt.Sprintf("Invalid value: %q: pods wait for each other: %s", first.Annotations[AnnotationAfter], strings.Join(names, " after ")),
	}}}}
}
