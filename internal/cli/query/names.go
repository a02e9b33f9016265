package query

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// ShortName returns the name of a pod in its manifest: the full name without the suffix of the node
// name.
func ShortName(p *v1.Pod) string {
	return pod.ManifestName(p)
}

// ByName returns the pods that have the name in the manifest, or the full name, name.
func ByName(pods []*v1.Pod, name string) []*v1.Pod {
	name = BareName(name)
	return slices.DeleteFunc(slices.Clone(pods), func(p *v1.Pod) bool { return p.Name != name && ShortName(p) != name })
}

// ContainerNames returns the names of all containers of pods, each once.
func ContainerNames(pods []*v1.Pod) []string {
	var names []string
	for _, p := range pods {
		for _, c := range pod.AllContainers(p) {
			if !slices.Contains(names, c.Name) {
				names = append(names, c.Name)
			}
		}
	}
	return names
}

// Namespaces returns the namespaces of pods, each once.
func Namespaces(pods []*v1.Pod) []string {
	var names []string
	for _, p := range pods {
		if !slices.Contains(names, p.Namespace) {
			names = append(names, p.Namespace)
		}
	}
	return names
}

// Target returns the arguments by which commands find a pod and, unless it is "", a container of it.
func Target(p *v1.Pod, container string) string {
	target := ShortName(p)
	if p.Namespace != "" && p.Namespace != v1.NamespaceDefault {
		target += " -n " + p.Namespace
	}
	if container != "" {
		target += " -c " + container
	}
	return target
}
