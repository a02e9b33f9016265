package record

import (
	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/pod"
)

// Restore is Recall after the pods that were stopped and have their results for good have these again.
func Restore(r *Record, store *checkpoint.Store) (map[pod.Key][]*checkpoint.Checkpoint, error) {
	if err := checkpoint.RestoreResults(store, owner.Serve); err != nil {
		r.log.Error("results of pods that run once ever cannot be read: they may run again", "err", err)
	}
	return r.Recall(store)
}
