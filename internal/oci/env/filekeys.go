package env

import (
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// FileKeys returns the files of volumes that Resolve needs to resolve c's environment.
func FileKeys(c *v1.Container) []pod.FileKey {
	var keys []pod.FileKey
	for _, e := range c.Env {
		if e.ValueFrom != nil && e.ValueFrom.FileKeyRef != nil {
			keys = append(keys, pod.FileKey{
				Volume: e.ValueFrom.FileKeyRef.VolumeName,
				Path:   e.ValueFrom.FileKeyRef.Path,
			})
		}
	}
	return keys
}
