package manifest

import (
	"slices"
	"testing"
	"time"
)

func TestSeenStaysWithARevision(t *testing.T) {
	t.Parallel()
	deployment := "---\n" + workloadText("Deployment", "d", "replicas: 2")
	read := func(image string) Loaded {
		loaded, err := Load([]byte(podText("a", image)+deployment), options("/a.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		return loaded
	}
	before := read("i:1")
	before.MarkSeen(Loaded{}, time.Unix(1, 0))
	now := read("i:1")
	now.MarkSeen(before, time.Unix(2, 0))
	if !slices.Equal(before.Pods, now.Pods) {
		t.Error("the revision was seen anew")
	}
	was, is := before.Workloads[0].Template.Annotations[AnnotationSeen], now.Workloads[0].Template.Annotations[AnnotationSeen]
	if was == "" || was != is {
		t.Errorf("the workload was seen at %q and %q", was, is)
	}
	now = read("i:2")
	now.MarkSeen(before, time.Unix(2, 0))
	if now.Pods[0].Annotations[AnnotationSeen] == was {
		t.Error("another revision was seen as early")
	}
}
