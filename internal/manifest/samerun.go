package manifest

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// SameRun reports whether what runs as running can stay as it is under the manifest wanted: nothing
// differs but where it was read, under which UID, and when.
func SameRun(running, wanted *v1.Pod) bool {
	a, b := comparable(running), comparable(wanted)
	return equality.Semantic.DeepEqual(a, b)
}

func comparable(p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	p.UID, p.Status = "", v1.PodStatus{}
	p.TypeMeta.Kind, p.TypeMeta.APIVersion = "", ""
	for _, name := range []string{AnnotationHash, AnnotationSource, AnnotationSeen, AnnotationManifest} {
		delete(p.Annotations, name)
	}
	if len(p.Annotations) == 0 {
		p.Annotations = nil
	}
	return p
}
