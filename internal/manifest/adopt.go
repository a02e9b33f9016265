package manifest

import (
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Adopt returns the manifest want as it runs in the containers of running, which it needs no new ones for
// (SameRun): under running's UID, with the resources that running has been allocated. resized is the same with
// want's resources; nil if they are the same. final says that running has reached its final phase.
func Adopt(want, running *v1.Pod, final bool) (kept, resized *v1.Pod) {
	kept = want.DeepCopy()
	if final {
		// The result is judged by the deadline that the pod ran with: Kubernetes' terminal phases are final.
		kept.Spec.ActiveDeadlineSeconds = running.Spec.ActiveDeadlineSeconds
	}
	SetUID(kept, running.UID)
	KeepConfig(kept, running)
	if seen := running.Annotations[AnnotationSeen]; seen != "" {
		Annotate(kept, AnnotationSeen, seen)
	}
	if !pod.SameSize(running, kept) {
		return pod.Sized(kept, running), kept
	}
	return kept, nil
}

// Annotate sets an annotation of p.
func Annotate(p *v1.Pod, name, value string) {
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[name] = value
}
