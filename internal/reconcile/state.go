package reconcile

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// state is what a worker has decided of its pod. It is passed by value: who gets it cannot change
// the worker's.
type state struct {
	pod *v1.Pod // the revision that runs or is to run; nil: the pod is not desired
	// resized is pod with the resources of its manifest while these are not allocated yet; nil if
	// they are.
	resized  *v1.Pod
	problem  string         // errors in pod's manifest
	objects  pod.Objects    // ConfigMaps and Secrets that pod may refer to
	maxGrace *time.Duration // upper limit of all grace periods
	stale    bool           // volumes may not show the current objects or pod
	unsure   bool           // the sources are incomplete: neither run nor delete
	earlier  bool           // a completed pod belongs to an earlier run
	// replaced reports that what exists under pod's UID belongs to another manifest, or was being
	// terminated.
	replaced bool
	// unwanted are revisions that were not desired and of which something has been terminated
	// since. The map is replaced, never changed.
	unwanted map[pod.UID]bool
}

// unwants reports that c belongs to a revision that is no longer desired.
func (s state) unwants(c pod.Container) bool {
	return s.pod == nil || c.UID != s.pod.UID || s.replaced
}

// container returns the container of p's manifest with that name; nil if there is none.
func container(p *v1.Pod, name string) *v1.Container {
	if p == nil {
		return nil
	}
	all := pod.AllContainers(p)
	if i := slices.IndexFunc(all, func(c *v1.Container) bool { return c.Name == name }); i >= 0 {
		return all[i]
	}
	return nil
}
