package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestPinImages: what is pinned, at once or one after the other, is taken back as it was.
func TestPinImages(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "a", Image: "a:1", ImagePullPolicy: v1.PullAlways}},
		Containers:     []v1.Container{{Name: "b", Image: "b"}, {Name: "c", Image: "c@sha256:9"}},
	}}
	before := p.DeepCopy()
	PinImages(p, map[string]string{"none": "sha256:1"})
	if len(p.Annotations) > 0 {
		t.Errorf("annotations: %v", p.Annotations)
	}
	PinImages(p, map[string]string{"a:1": "sha256:1"})
	PinImages(p, map[string]string{"a:1": "sha256:2", "b": "sha256:3"})
	all := AllContainers(p)
	if all[0].Image != "a:1@sha256:1" || all[0].ImagePullPolicy != v1.PullIfNotPresent || all[1].Image != "b@sha256:3" ||
		all[2].Image != "c@sha256:9" {
		t.Errorf("%+v", all)
	}
	UnpinImages(p)
	for i, c := range AllContainers(p) {
		if was := AllContainers(before)[i]; c.Image != was.Image || c.ImagePullPolicy != was.ImagePullPolicy {
			t.Errorf("%s is %s, %s", c.Name, c.Image, c.ImagePullPolicy)
		}
	}
	if len(p.Annotations) > 0 {
		t.Errorf("annotations: %v", p.Annotations)
	}
	p.Annotations = map[string]string{AnnotationPinned: "{"}
	UnpinImages(p)
}
