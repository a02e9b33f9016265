package containerd

import (
	"fmt"
	"strconv"

	"github.com/containerd/containerd/v2/core/containers"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/images"
)

// The labels of podrun's containers. They identify the instance and never change. Kubernetes tools
// know the first four. The label of the image ID keeps the image from being garbage collected.
const (
	labelPodName      = "io.kubernetes.pod.name"
	labelPodNamespace = "io.kubernetes.pod.namespace"
	labelPodUID       = "io.kubernetes.pod.uid"
	labelContainer    = "io.kubernetes.container.name"
	labelAttempt      = "podrun.io/attempt"
	labelImageID      = images.LabelImageID
)

// labelsOf returns the labels of the instance that a start creates.
func labelsOf(s runtime.Start) map[string]string {
	labels := map[string]string{
		labelPodName:      s.Pod.Name,
		labelPodNamespace: s.Pod.Namespace,
		labelPodUID:       string(s.Pod.UID),
		labelContainer:    s.Container.Name,
		labelAttempt:      strconv.Itoa(s.Attempt),
	}
	if s.Image.ID != "" {
		labels[labelImageID] = s.Image.ID
	}
	return labels
}

// ours reports whether podrun created the container with these labels.
func ours(labels map[string]string) bool {
	_, err := strconv.Atoi(labels[labelAttempt])
	return err == nil && labels[labelPodName] != "" && labels[labelPodUID] != "" && labels[labelContainer] != ""
}

// keyOf returns the pod to which a container with these labels belongs.
func keyOf(labels map[string]string) pod.Key {
	return pod.Key{Namespace: labels[labelPodNamespace], Name: labels[labelPodName]}
}

// identity returns what the labels say: which instance the container is.
func identity(c containers.Container) pod.Container {
	attempt, _ := strconv.Atoi(c.Labels[labelAttempt]) // ours has checked it
	return pod.Container{
		ID: c.ID, Name: c.Labels[labelContainer], UID: pod.UID(c.Labels[labelPodUID]), Attempt: attempt,
	}
}

// keyFilter selects the containers of a pod, in containerd's filter language.
func keyFilter(key pod.Key) string {
	return fmt.Sprintf("labels.%q==%q,labels.%q==%q", labelPodNamespace, key.Namespace, labelPodName, key.Name)
}

// uidFilter selects the containers and records of a revision.
func uidFilter(uid pod.UID) string { return fmt.Sprintf("labels.%q==%q", labelPodUID, string(uid)) }
