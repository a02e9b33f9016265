// Package instance knows what an instance (one run of a container) is in containerd and on disk:
// its labels, its record and task, its spec, its processes and its files; the cache of IDs; and
// containerd's sandbox records. The packages that start, stop and list instances share it.
//
// It decides nothing, and starts and stops no process. Begin reading at Lookup and Files.
package instance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/core/containers"
	"k8s.io/apimachinery/pkg/util/validation"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/images"
)

// The labels of podrun's containers. They identify the instance and never change. Kubernetes tools
// know the first four. The label of the image ID keeps the image from being garbage collected.
const (
	LabelPodName      = "io.kubernetes.pod.name"
	LabelPodNamespace = "io.kubernetes.pod.namespace"
	LabelPodUID       = "io.kubernetes.pod.uid"
	LabelContainer    = "io.kubernetes.container.name"
	LabelAttempt      = "podrun.io/attempt"
	LabelRoot         = "podrun.io/root-dir"
	LabelImageID      = images.LabelImageID
)

// Labels returns the labels of the instance that a start of the podrun with a root directory creates.
func Labels(s runtime.Start, root string) map[string]string {
	labels := LabelsOf(pod.KeyOf(s.Pod), pod.Container{UID: s.Pod.UID, Name: s.Container.Name, Attempt: s.Attempt})
	labels[LabelRoot] = root
	if s.Image.ID != "" {
		labels[LabelImageID] = s.Image.ID
	}
	return labels
}

// LabelsOf returns the labels that identify an instance of a pod.
func LabelsOf(key pod.Key, c pod.Container) map[string]string {
	return map[string]string{
		LabelPodName:      key.Name,
		LabelPodNamespace: key.Namespace,
		LabelPodUID:       string(c.UID),
		LabelContainer:    c.Name,
		LabelAttempt:      strconv.Itoa(c.Attempt),
	}
}

// Ours reports whether podrun created the container. Its labels alone do not say so: a container also gets those of its
// image, whoever starts it. It has an ID of podrun's form, which others do not choose, and what its labels name can be
// the names of files.
func Ours(c containers.Container) bool {
	labels := c.Labels
	attempt, err := strconv.Atoi(labels[LabelAttempt])
	return err == nil && attempt >= 0 && isID(c.ID) && layout.CheckUID(pod.UID(labels[LabelPodUID])) == nil &&
		len(validation.IsDNS1123Label(labels[LabelPodNamespace])) == 0 &&
		len(validation.IsDNS1123Subdomain(labels[LabelPodName])) == 0 &&
		len(validation.IsDNS1123Label(labels[LabelContainer])) == 0
}

// OfAnother reports whether a container or record with these labels is of a podrun with another root
// directory than root. Several may use one namespace of containerd; each knows only the pods of which it
// has the checkpoints. What is of a directory that is gone is nobody else's.
func OfAnother(labels map[string]string, root string) bool {
	other := labels[LabelRoot]
	if other == "" || other == root { // older podruns did not set it
		return false
	}
	theirs, err := os.Stat(layout.Dirs{Root: other}.Pods()) // trusted: only root sets labels
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	ours, failed := os.Stat(layout.Dirs{Root: root}.Pods()) // trusted: podrun made it
	return err != nil || failed != nil || !os.SameFile(theirs, ours)
}

// isID reports that a container's ID is of podrun's form: 128 bits in hexadecimal digits. Those of Kubernetes and
// Docker have 256.
func isID(id string) bool {
	return len(id) == 32 && strings.Trim(id, "0123456789abcdef") == ""
}

// KeyOf returns the pod to which a container with these labels belongs.
func KeyOf(labels map[string]string) pod.Key {
	return pod.Key{Namespace: labels[LabelPodNamespace], Name: labels[LabelPodName]}
}

// Identity returns what the labels say: which instance the container is.
func Identity(c containers.Container) pod.Container {
	attempt, _ := strconv.Atoi(c.Labels[LabelAttempt]) // Ours has checked it
	return pod.Container{
		ID: c.ID, Name: c.Labels[LabelContainer], UID: pod.UID(c.Labels[LabelPodUID]), Attempt: attempt,
	}
}

// KeyFilter selects the containers of a pod, in containerd's filter language.
func KeyFilter(key pod.Key) string {
	return fmt.Sprintf("labels.%q==%q,labels.%q==%q", LabelPodNamespace, key.Namespace, LabelPodName, key.Name)
}

// UIDFilter selects the containers and records of a revision.
func UIDFilter(uid pod.UID) string { return fmt.Sprintf("labels.%q==%q", LabelPodUID, string(uid)) }
