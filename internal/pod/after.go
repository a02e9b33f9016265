package pod

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// AnnotationAfter lists, separated by commas, the pods that this one starts after: the names in
// their manifests, each with namespace and slash in front if it is in another namespace.
const AnnotationAfter = "podrun.io/after"

// After returns the pods that p starts after, by its annotation AnnotationAfter.
func After(p *v1.Pod) []Key {
	value, ok := p.Annotations[AnnotationAfter]
	if !ok {
		return nil
	}
	// All pods of a node have the node's name as suffix.
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
