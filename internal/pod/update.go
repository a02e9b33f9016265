package pod

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

const (
	// AnnotationUpdate says how an edit replaces a pod: RollingUpdate, or at once without it.
	AnnotationUpdate = "podrun.io/update"
	// RollingUpdate lets another pod become ready before the pod is replaced.
	RollingUpdate = "rolling"
	// AnnotationAutoUpdate says what happens when the reference of one of a pod's images refers to another image in the
	// registry: with AutoUpdateRegistry the pod is updated, with AutoUpdateNotify an event tells of it.
	AnnotationAutoUpdate = "podrun.io/auto-update"
	AutoUpdateRegistry   = "registry"
	AutoUpdateNotify     = "notify"
	// AnnotationWorkload is set on the pods of a workload: the workload's kind and name, such as Deployment/web.
	AnnotationWorkload = "podrun.io/workload"
	// AnnotationSurge is set on the pods that there are beyond those of the manifest while these are updated: the kind
	// and name of what is updated, such as Deployment/web.
	AnnotationSurge = "podrun.io/surge"
)

// UpdateGroup returns what pods have in common that belong to one update, of which one may have the other's host ports
// meanwhile, and whether p is there for the update alone.
func UpdateGroup(p *v1.Pod) (group string, surge bool) {
	of := p.Annotations[AnnotationSurge]
	if surge = of != ""; !surge {
		of = p.Annotations[AnnotationWorkload]
	}
	if of == "" {
		of = "Pod/" + p.Name
	}
	return p.Namespace + "/" + of, surge
}

// RunsAlone says why two pods of a template cannot run at the same time; "" if they can.
func RunsAlone(p *v1.Pod, sharesPorts bool) string {
	switch {
	case len(HostPorts(p)) > 0 && p.Spec.HostNetwork:
		return "it listens on ports of the machine itself"
	case len(HostPorts(p)) > 0 && !sharesPorts:
		return "CNI plugins forward its host ports"
	case slices.ContainsFunc(p.Spec.Volumes, writesClaim):
		return "it has a claim that it may write to"
	}
	for _, c := range AllContainers(p) {
		for name := range c.Resources.Limits {
			if IsDevice(name) {
				return "it has a device of its own: " + string(name)
			}
		}
	}
	return ""
}

func writesClaim(v v1.Volume) bool {
	return v.PersistentVolumeClaim != nil && !v.PersistentVolumeClaim.ReadOnly
}

// NeverUpdated returns why AnnotationAutoUpdate cannot have an effect on a pod; "" if it can, or is not there.
func NeverUpdated(p *v1.Pod) string {
	if p.Annotations[AnnotationAutoUpdate] == "" {
		return ""
	}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if !strings.Contains(c.Image, "@") && c.ImagePullPolicy != v1.PullNever {
			return ""
		}
	}
	return "the reference of each image has a digest, or its pull policy is Never"
}
