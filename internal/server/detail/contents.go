package detail

import (
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/contents"
)

// Contents are a pod's volumes, and the containers of it that have environment variables.
type Contents struct {
	Volumes     []contents.Volume
	Environment []Environment
}

// Environment is what a container has in its environment: From are objects that it has whole.
type Environment struct {
	Container string
	From, All []contents.Field
}

// ContentsOf returns what a pod's page shows of its volumes and environment.
func ContentsOf(p *v1.Pod) Contents {
	out := Contents{Volumes: contents.Volumes(p)}
	for _, c := range pod.AllContainers(p) {
		if from, all := contents.Environment(c); len(from)+len(all) > 0 {
			out.Environment = append(out.Environment, Environment{c.Name, from, all})
		}
	}
	return out
}
