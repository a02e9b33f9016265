package pod

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// AnnotationAfter has the pods that must have come to their result before this one starts, with commas
// between: the names of their manifests, each with its namespace and a slash in front if that is another.
const AnnotationAfter = "podrun.io/after"

// After returns the pods that p waits for before it starts.
func After(p *v1.Pod) []Key {
	value, ok := p.Annotations[AnnotationAfter]
	if !ok {
		return nil
	}
	// All pods of a node are named alike.
	suffix := "-" + p.Spec.NodeName
	if !strings.HasSuffix(p.Name, suffix) {
		suffix = ""
	}
	var keys []Key
	for _, name := range strings.Split(value, ",") {
		namespace, name, named := strings.Cut(strings.TrimSpace(name), "/")
		if !named {
			namespace, name = p.Namespace, namespace
		}
		keys = append(keys, Key{Namespace: namespace, Name: name + suffix})
	}
	return keys
}
