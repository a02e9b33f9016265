// Package storage says which of its limits on local storage a pod exceeds, for which it is evicted. It is pure.
package storage

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Exceeded returns, in the kubelet's words, which of its limits on local ephemeral storage p
// exceeds; "" if none.
func Exceeded(p *v1.Pod, used pod.Usage) string {
	limits := pod.StorageLimitsOf(p)
	for _, name := range slices.Sorted(maps.Keys(limits.Volumes)) {
		if limit := limits.Volumes[name]; used.Volumes[name] > limit.Value() {
			return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q.", name, limit.String())
		}
	}
	if whole := limits.Whole; whole != nil {
		sum := used.Etc
		for _, of := range []map[string]int64{used.Volumes, used.Containers} {
			for _, bytes := range of {
				sum += bytes
			}
		}
		if sum > whole.Value() {
			return fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s.",
				whole.String())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(limits.Containers)) {
		if limit := limits.Containers[name]; used.Containers[name] > limit.Value() {
			return fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q.", name, limit.String())
		}
	}
	return ""
}
