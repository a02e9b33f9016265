package query

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/status/summary"
)

// ShortName returns the name of a pod in its manifest: the full name without the suffix of the node
// name.
func ShortName(p *v1.Pod) string {
	return strings.TrimSuffix(p.Name, "-"+strings.ToLower(p.Spec.NodeName))
}

// Completions returns the completions for the names of pods, each with the state of the pod: the name
// in the manifest, or the full name if several pods have that name. It leaves out pods that are in
// given.
func Completions(pods []*v1.Pod, given []string) []string {
	count := map[string]int{}
	for _, p := range pods {
		count[ShortName(p)]++
	}
	var words []string
	for _, p := range pods {
		name := ShortName(p)
		if count[name] > 1 {
			name = p.Name
		}
		if !slices.Contains(given, name) && !slices.Contains(given, p.Name) {
			words = append(words, name+"\t"+summary.Of(p).Text)
		}
	}
	return words
}
