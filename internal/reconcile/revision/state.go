// Package revision is what a worker has decided of its pod ([State]), and the saved manifests of the
// pod's revisions ([Manifests]). Which revision is kept is decided by plan.SelectRevision.
//
// Begin reading with State.
package revision

import (
	"time"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// State is what a worker has decided of its pod. It is passed by value: who gets it cannot change
// the worker's.
type State struct {
	plan.Selection
	Problem  string         // errors in Pod's manifest
	Objects  pod.Objects    // ConfigMaps and Secrets that Pod may refer to
	MaxGrace *time.Duration // upper limit of all grace periods
	Stale    bool           // volumes may not show the current objects or pod
	Earlier  bool           // a completed pod belongs to an earlier run
}
