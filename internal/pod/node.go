package pod

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// NodeMismatch says what p asks of the labels of its node that these do not meet; "" if they meet all.
func NodeMismatch(p *v1.Pod, labels map[string]string) string {
	var missing []string
	for _, key := range slices.Sorted(maps.Keys(p.Spec.NodeSelector)) {
		if value, ok := labels[key]; !ok || value != p.Spec.NodeSelector[key] {
			missing = append(missing, key+"="+p.Spec.NodeSelector[key])
		}
	}
	switch {
	case len(missing) > 0:
		return "the node does not have what nodeSelector asks for: " + strings.Join(missing, ", ")
	case !matchesAffinity(p, labels):
		return "the node's labels do not match the required node affinity; see --node-labels"
	}
	return ""
}

// matchesAffinity reports whether the node has what the required node affinity of p asks for. A term
// that cannot be used matches nothing, as by the kubelet.
func matchesAffinity(p *v1.Pod, labels map[string]string) bool {
	if p.Spec.Affinity == nil {
		return true
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.Spec.NodeName, Labels: labels}}
	matches, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(node)
	return matches && err == nil
}
