package volume

import (
	"fmt"
	"path"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/volume/filled"
	"podrun.io/podrun/internal/volume/fsgroup"
)

// Outdated returns the names of the volumes of a running pod whose files Refresh would change because
// the ConfigMaps and Secrets have another content. It changes nothing.
func Outdated(dirs layout.Dirs, p *v1.Pod, objects pod.Objects) ([]string, error) {
	var names []string
	for whole, dir := range filledVolumes(dirs, p) {
		if whole.DownwardAPI != nil || !filled.IsWritten(dir) { // the start of a container prepares it
			continue
		}
		volume, downward := splitDownward(*whole)
		now, err := fillAgain(pod.Inside{Pod: p, Objects: objects}, volume, dir)
		if err != nil {
			continue // Refresh fails too, and leaves the files as they are
		}
		for name := range downward {
			delete(now.files, name)
		}
		same, err := filled.Shows(dir, now.files, fsgroup.Of(p), downward)
		if err != nil {
			return nil, fmt.Errorf("reading the files of volume %q of pod %s: %w", volume.Name, pod.KeyOf(p), err)
		}
		if !same {
			names = append(names, volume.Name)
		}
	}
	return names, nil
}

// splitDownward returns the volume without its sources that come from the pod itself, and the paths of
// their files.
func splitDownward(v v1.Volume) (rest *v1.Volume, paths map[string]bool) {
	if v.Projected == nil {
		return &v, nil
	}
	paths = map[string]bool{}
	all := *v.Projected
	all.Sources = nil
	for _, s := range v.Projected.Sources {
		if s.DownwardAPI == nil {
			all.Sources = append(all.Sources, s)
			continue
		}
		for _, item := range s.DownwardAPI.Items {
			paths[path.Clean(item.Path)] = true
		}
	}
	v.Projected = &all
	return &v, paths
}
