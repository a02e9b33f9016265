package images

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/revisions"
)

// TestNeeded: the images of pods, of what they may be rolled back to, and of workloads without a pod are kept.
func TestNeeded(t *testing.T) {
	t.Parallel()
	of := func(image string) *v1.Pod {
		return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Image: image}}}}
	}
	want := manifest.Desired{Complete: true, Pods: map[pod.Key]*v1.Pod{{Name: "web"}: of("web:2")}}
	want.Revisions = map[workload.ID]*revisions.History{
		{Kind: workload.Pod}: {Good: &revisions.Revision{
			Template: of("web:1"), Images: map[string]string{"web:1": "sha256:1"},
		}},
		{Kind: workload.Deployment}: {Updates: map[string]string{"db:1": "sha256:2"}},
	}
	want.Workloads = []*workload.Workload{
		{ID: workload.ID{Kind: workload.CronJob}, Template: of("backup:1")}, // its first time is at night
	}
	refs, sure := Archives{Dirs: layout.Dirs{Root: t.TempDir()}}.Needed(want)
	slices.Sort(refs)
	if !slices.Equal(refs, []string{"backup:1", "db:1@sha256:2", "web:1", "web:1@sha256:1", "web:2"}) || !sure {
		t.Errorf("%v, %v", refs, sure)
	}
	if held := Held(want); len(held) != 2 || !slices.Contains(held, "web:1@sha256:1") {
		t.Errorf("held: %v", held)
	}
}
