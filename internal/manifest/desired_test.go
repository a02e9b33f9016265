package manifest

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestSeenStaysWithARevision(t *testing.T) {
	t.Parallel()
	read := func() []*v1.Pod {
		loaded, err := Load([]byte(podText("a", "i:1")), options("/a.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		return loaded.Pods
	}
	before := read()
	MarkSeen(before, nil, time.Unix(1, 0))
	now := read()
	MarkSeen(now, before, time.Unix(2, 0))
	if !slices.Equal(before, now) {
		t.Error("the revision was seen anew")
	}
}
