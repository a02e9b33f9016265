package summary

import (
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Role is a container of a pod, with its status and its kind: main, init or sidecar.
type Role struct {
	Container *v1.Container
	Status    *v1.ContainerStatus // nil if the pod has no status of the container yet
	Init      bool
}

// InstanceID returns the runtime's ID of the instance that the status describes, or "" if there is
// none.
func (r Role) InstanceID() string {
	if r.Status == nil {
		return ""
	}
	return pod.IDOf(r.Status.ContainerID)
}

// Roles returns the containers of a pod: the main containers first, then the init containers.
func Roles(p *v1.Pod) []Role {
	var all []Role
	collect := func(containers []v1.Container, statuses []v1.ContainerStatus, init bool) {
		of := make(map[string]*v1.ContainerStatus, len(statuses))
		for i := range statuses {
			of[statuses[i].Name] = &statuses[i]
		}
		for i := range containers {
			all = append(all, Role{Container: &containers[i], Status: of[containers[i].Name], Init: init})
		}
	}
	collect(p.Spec.Containers, p.Status.ContainerStatuses, false)
	collect(p.Spec.InitContainers, p.Status.InitContainerStatuses, true)
	return all
}

// Kind returns "init", "sidecar", or "" for a main container.
func (r Role) Kind() string {
	switch {
	case !r.Init:
		return ""
	case pod.IsSidecar(r.Container):
		return "sidecar"
	}
	return "init"
}
