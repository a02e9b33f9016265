package cli

import (
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Role is a container of a pod with what distinguishes the kinds.
type Role struct {
	Container *v1.Container
	Status    *v1.ContainerStatus // nil while unknown
	Init      bool
}

// InstanceID is the runtime's ID of the instance that the status tells of; "" while there is none.
func (r Role) InstanceID() string {
	if r.Status == nil {
		return ""
	}
	return pod.IDOf(r.Status.ContainerID)
}

// Roles lists a pod's containers, the main ones first.
func Roles(p *v1.Pod) []Role {
	var all []Role
	collect := func(containers []v1.Container, statuses []v1.ContainerStatus, init bool) {
		for i := range containers {
			r := Role{Container: &containers[i], Init: init}
			for j := range statuses {
				if statuses[j].Name == containers[i].Name {
					r.Status = &statuses[j]
				}
			}
			all = append(all, r)
		}
	}
	collect(p.Spec.Containers, p.Status.ContainerStatuses, false)
	collect(p.Spec.InitContainers, p.Status.InitContainerStatuses, true)
	return all
}

// Kind is what a container is beside the main ones: init, sidecar or nothing.
func (r Role) Kind() string {
	switch {
	case !r.Init:
		return ""
	case pod.IsSidecar(r.Container):
		return "sidecar"
	}
	return "init"
}
