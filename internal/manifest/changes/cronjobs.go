package changes

import (
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
)

// OfCronJobs returns a Change for each CronJob that is created, removed or edited. An edit changes no pod that exists.
// there are those of the serve that runs, by what their manifests name them.
func OfCronJobs(d manifest.Desired, there map[pod.Key]*batchv1.CronJob) []Change {
	wanted := map[pod.Key]*workload.Workload{}
	for _, w := range d.Workloads {
		if w.Kind == workload.CronJob {
			wanted[w.Key] = w
		}
	}
	var all []Change
	for _, key := range slices.SortedFunc(maps.Keys(wanted), pod.Key.Compare) {
		w, was := wanted[key], there[key]
		c := Change{Kind: string(workload.CronJob), Key: key, Action: Create, Origin: manifest.OriginOf(w.Template)}
		if was != nil {
			c.Action = Update
			c.setEdits(was.Spec, w.Object.(*batchv1.CronJob).Spec)
		}
		if was == nil || len(c.Edits) > 0 {
			all = append(all, c)
		}
	}
	if !d.Complete || len(d.Problems) > 0 { // one may be in a manifest that cannot be read
		return all
	}
	for _, key := range slices.SortedFunc(maps.Keys(there), pod.Key.Compare) {
		if wanted[key] == nil {
			all = append(all, Change{Kind: string(workload.CronJob), Key: key, Action: Remove})
		}
	}
	return all
}
