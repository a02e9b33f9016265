package workload

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Containers returns the containers of the template of a workload, but for its init containers: none if it has no
// template. pods are its pods, whose containers are in place of those of a document that is not known any more.
func Containers(o runtime.Object, pods []*v1.Pod) []v1.Container {
	var template v1.PodTemplateSpec
	switch o := o.(type) {
	case *appsv1.Deployment:
		template = o.Spec.Template
	case *appsv1.ReplicaSet:
		template = o.Spec.Template
	case *appsv1.StatefulSet:
		template = o.Spec.Template
	case *appsv1.DaemonSet:
		template = o.Spec.Template
	case *batchv1.Job:
		template = o.Spec.Template
	case *batchv1.CronJob:
		template = o.Spec.JobTemplate.Spec.Template
	}
	if len(template.Spec.Containers) == 0 && len(pods) > 0 {
		return pods[0].Spec.Containers
	}
	return template.Spec.Containers
}

// Names returns the names and the images of containers.
func Names(containers []v1.Container) (names, images []string) {
	for _, c := range containers {
		names, images = append(names, c.Name), append(images, c.Image)
	}
	return names, images
}
