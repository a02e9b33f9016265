package nodeinfo

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/objects"
)

// TestRead: what is shown of the sources of manifests.
func TestRead(t *testing.T) {
	t.Parallel()
	s := &Server{}
	good := func(image, key string) manifest.Snapshot {
		secret := &v1.Secret{Data: map[string][]byte{"key": []byte(key)}}
		secret.Name = "s"
		return manifest.Snapshot{
			Source: "a", Pods: []*v1.Pod{{Spec: v1.PodSpec{Containers: []v1.Container{{Image: image}}}}},
			Objects: []manifest.Object{{Object: objects.Object{Secret: secret}}}, Problems: []manifest.Problem{{}},
		}
	}
	s.Read(good("one", "x"))
	first := s.sources[0]
	if first.Read.IsZero() || first.Pods != 1 || first.Others != 1 || first.Wrong != 1 || len(first.Revision) != 8 || first.Error != "" {
		t.Errorf("%+v", first)
	}
	s.Read(good("one", "y"))
	if now := s.sources[0]; now.Revision != first.Revision {
		t.Errorf("a Secret's value has changed: %s, %s", first.Revision, now.Revision)
	}
	s.Read(good("two", "y"))
	changed := s.sources[0]
	if changed.Revision == first.Revision {
		t.Error("the image has changed")
	}
	s.Read(manifest.Snapshot{Source: "b", Err: errors.New("first")})
	s.Read(manifest.Snapshot{Source: "a", Err: errors.New("gone")})
	since := s.sources[0].Since
	s.Read(manifest.Snapshot{Source: "a", Err: errors.New("gone again")})
	if a := s.sources[0]; a.Error != "gone again" || a.Since != since || since.IsZero() || a.Read != changed.Read || a.Revision != changed.Revision {
		t.Errorf("%+v", a)
	}
	if b := s.sources[1]; len(s.sources) != 2 || b.Name != "b" || b.Error != "first" || !b.Read.IsZero() {
		t.Errorf("%+v", s.sources)
	}
	s.Read(good("two", "y"))
	if a := s.sources[0]; a.Error != "" || !a.Since.IsZero() {
		t.Errorf("%+v", a)
	}
}
