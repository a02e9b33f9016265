package pod

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// ManifestName returns the name of p in its manifest: without the node's name, which ends the name of a pod.
func ManifestName(p *v1.Pod) string {
	if p.Spec.NodeName == "" {
		return p.Name
	}
	return strings.TrimSuffix(p.Name, "-"+strings.ToLower(p.Spec.NodeName))
}
