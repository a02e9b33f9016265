package manifest

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest/order"
	"podrun.io/podrun/internal/pod"
)

// cycles returns Problems for the pods, and Jobs that are not complete, that wait for each other to start. The pods
// remain in the desired state, because those that run are not affected.
func cycles(d Desired) (problems []Problem) {
	templates, after := map[pod.Key]*v1.Pod{}, map[pod.Key][]pod.Key{}
	add := func(key pod.Key, p *v1.Pod) { templates[key], after[key] = p, pod.After(p) }
	for _, w := range d.Workloads {
		if complete, job := d.Arrived[pod.KeyOf(w.Template)]; job && !complete {
			add(pod.KeyOf(w.Template), w.Template)
		}
	}
	for key, p := range d.Pods {
		add(key, p)
	}
	for _, way := range order.Cycles(after) {
		var names []string
		for _, key := range append(slices.Clone(way), way[0]) {
			names = append(names, key.String())
		}
		first := templates[way[0]]
		err := &InvalidError{Errors: []FieldError{{
			File:  OriginOf(first).Path,
			Field: "metadata.annotations[" + pod.AnnotationAfter + "]",
			Key:   way[0],
			Message: fmt.Sprintf("Invalid value: %q: pods wait for each other: %s",
				first.Annotations[pod.AnnotationAfter], strings.Join(names, " after ")),
		}}}
		problems = append(problems, Problem{Origin: OriginOf(first), Key: way[0], Err: err})
	}
	return problems
}
