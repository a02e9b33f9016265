package pod

import (
	"maps"
	"testing"
)

func TestVolumeImages(t *testing.T) {
	t.Parallel()
	for want, ids := range map[string]map[string]string{
		"":                              {},
		"a=r/x@sha256:1 b=r/y@sha256:2": {"b": "r/y@sha256:2", "a": "r/x@sha256:1"},
	} {
		spelled := VolumeImagesOf(ids)
		if spelled != want {
			t.Errorf("%v: %q", ids, spelled)
		}
		if got := ReadVolumeImages(spelled); !maps.Equal(got, ids) {
			t.Errorf("%q: %v", spelled, got)
		}
	}
}
