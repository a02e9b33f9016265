package pod

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"
)

const (
	// AnnotationRollback says whether a revision of the manifest that does not become healthy in time gives way to the
	// last one that was: "true" or "false".
	AnnotationRollback = "podrun.io/rollback"
	// AnnotationProgressDeadline is for how many seconds a revision may take to become healthy.
	AnnotationProgressDeadline = "podrun.io/progress-deadline-seconds"
	// AnnotationPinned is set on pods that run images by digests that their manifests do not have: what the manifest
	// has instead, by container, as JSON.
	AnnotationPinned = "podrun.io/pinned-images"
)

// pinned is what the manifest of a container has in place of an image by digest.
type pinned struct {
	Image  string        `json:"image"`
	Policy v1.PullPolicy `json:"imagePullPolicy,omitempty"`
}

// PinImages makes the containers of p run images by these digests, by the references in its manifest. Such an image is
// not pulled if it is present, since a digest cannot refer to another one.
func PinImages(p *v1.Pod, digests map[string]string) {
	all := map[string]pinned{}
	_ = json.Unmarshal([]byte(p.Annotations[AnnotationPinned]), &all) // what was pinned before
	for _, c := range AllContainers(p) {
		digest := digests[c.Image]
		if digest == "" {
			continue
		}
		all[c.Name] = pinned{c.Image, c.ImagePullPolicy}
		c.Image += "@" + digest
		if c.ImagePullPolicy == v1.PullAlways {
			c.ImagePullPolicy = v1.PullIfNotPresent
		}
	}
	if text, err := json.Marshal(all); err == nil && len(all) > 0 {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[AnnotationPinned] = string(text)
	}
}

// UnpinImages takes PinImages back.
func UnpinImages(p *v1.Pod) {
	var all map[string]pinned
	if json.Unmarshal([]byte(p.Annotations[AnnotationPinned]), &all) != nil {
		return
	}
	delete(p.Annotations, AnnotationPinned)
	for _, c := range AllContainers(p) {
		if was, is := all[c.Name]; is {
			c.Image, c.ImagePullPolicy = was.Image, was.Policy
		}
	}
}
