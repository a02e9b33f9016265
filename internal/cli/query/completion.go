package query

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/summary"
)

// ShortName returns the name of a pod in its manifest: the full name without the suffix of the node
// name.
func ShortName(p *v1.Pod) string {
	return pod.ManifestName(p)
}

// Completions returns the completions for the names of pods, each with the state of the pod: the name
// in the manifest, or the full name if several pods have that name. It leaves out pods that are in
// exclude.
func Completions(pods []*v1.Pod, exclude []string) []string {
	count := map[string]int{}
	for _, p := range pods {
		count[ShortName(p)]++
	}
	var completions []string
	for _, p := range pods {
		name := ShortName(p)
		if count[name] > 1 {
			name = p.Name
		}
		if !slices.Contains(exclude, name) && !slices.Contains(exclude, p.Name) {
			completions = append(completions, name+"\t"+summary.Of(p).Text)
		}
	}
	return completions
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

// PortCompletions returns the completions of a port of pods: the ports that their containers name, each with its
// name and container, after the local port in text if it has one.
func PortCompletions(pods []*v1.Pod, text string) []string {
	local := ""
	if i := strings.LastIndex(text, ":"); i >= 0 {
		local = text[:i+1]
	}
	var completions []string
	for _, p := range pods {
		for _, c := range pod.AllContainers(p) {
			for _, port := range c.Ports {
				if port.Protocol == v1.ProtocolUDP || port.Protocol == v1.ProtocolSCTP {
					continue // port-forward forwards TCP alone
				}
				about := strings.TrimSpace(port.Name + " of " + c.Name)
				completions = append(completions, fmt.Sprintf("%s%d\t%s", local, port.ContainerPort, about))
			}
		}
	}
	return completions
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
