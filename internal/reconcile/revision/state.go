// Package revision is what a worker remembers of its pod from sync to sync ([State]), and the saved
// manifests of the pod's revisions ([Manifests]). It decides nothing: plan.SelectRevision selects
// the revision that is kept.
//
// Begin reading with State.
package revision

import (
	"time"

	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// State is what a worker remembers of its pod: the revision that plan.SelectRevision has selected,
// and what belongs to it. It is passed by value: who gets it cannot change the worker's.
type State struct {
	plan.Selection
	Problem  string         // errors in Pod's manifest
	Objects  pod.Objects    // ConfigMaps and Secrets that Pod may refer to
	MaxGrace *time.Duration // upper limit of all grace periods
	Stale    bool           // volumes may not show the current objects or pod
	Unsaved  bool           // Pod could not be saved
	Earlier  bool           // a completed pod belongs to an earlier run
	Result   pod.UID        // the revision whose result outlives its data; "" if none
	CutOff   pod.UID        // the revision that was cut off, which could not be recorded; "" if none
}
