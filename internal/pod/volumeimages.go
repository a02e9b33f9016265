package pod

import (
	"maps"
	"slices"
	"strings"
)

// VolumeImagesOf spells the IDs of the images that an instance has as volumes, by volume name, so that
// Container stays comparable.
func VolumeImagesOf(ids map[string]string) string {
	all := make([]string, 0, len(ids))
	for _, volume := range slices.Sorted(maps.Keys(ids)) {
		all = append(all, volume+"="+ids[volume])
	}
	return strings.Join(all, " ")
}

// ReadVolumeImages returns the IDs of a text of VolumeImagesOf, by volume name.
func ReadVolumeImages(spelled string) map[string]string {
	ids := map[string]string{}
	for one := range strings.FieldsSeq(spelled) {
		if volume, id, ok := strings.Cut(one, "="); ok {
			ids[volume] = id
		}
	}
	return ids
}
