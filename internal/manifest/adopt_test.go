package manifest_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"podrun.io/podrun/internal/manifest"
)

// TestAdopt: a manifest that needs no new containers runs under the UID, the beginning and the
// allocated resources of what runs, and under its deadline once that has ended.
func TestAdopt(t *testing.T) {
	t.Parallel()
	made := func(uid, cpu string, deadline int64) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{ActiveDeadlineSeconds: &deadline, Containers: []v1.Container{{Name: "a"}}}}
		manifest.Annotate(p, manifest.AnnotationSeen, "began "+uid)
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
		manifest.SetUID(p, types.UID("u-"+uid))
		return p
	}
	running, want := made("old", "1", 5), made("new", "2", 9)
	cpu := func(p *v1.Pod) string { return p.Spec.Containers[0].Resources.Requests.Cpu().String() }
	for _, final := range []bool{false, true} {
		kept, resized := manifest.Adopt(want, running, final)
		if kept.UID != "u-old" || cpu(kept) != "1" || kept.Annotations[manifest.AnnotationSeen] != "began old" {
			t.Errorf("kept %s, CPU %s, %v", kept.UID, cpu(kept), kept.Annotations)
		}
		if resized == nil || resized.UID != "u-old" || cpu(resized) != "2" {
			t.Errorf("resized: %v", resized)
		}
		if got := *kept.Spec.ActiveDeadlineSeconds; final != (got == 5) {
			t.Errorf("final %v: deadline %d", final, got)
		}
	}
	if _, resized := manifest.Adopt(running, running, false); resized != nil {
		t.Errorf("resized %v without a change", resized)
	}
	if want.UID != "u-new" {
		t.Errorf("the argument became %s", want.UID)
	}
}
