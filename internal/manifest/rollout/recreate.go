package rollout

import (
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
)

// recreates reports that no pod of the workload may start while one of a former template exists.
func recreates(w *workload.Workload) bool {
	d, is := w.Object.(*appsv1.Deployment)
	return is && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType
}

// recreate removes the pods of w from those that are desired, as long as pods of a former template exist: of those that
// were desired before or, once they are not any more, of those that have not ended yet. All of this follows from what
// exists, so that it goes on in the same way after a restart of podrun.
func recreate(w *workload.Workload, d *manifest.Desired, recorded workload.Recorded, before map[pod.Key]*v1.Pod) {
	var own []pod.Key
	former, updated := false, false
	for i := range w.Replicas {
		key := w.PodKey(w.Start + i)
		if !isOf(d.Pods[key], w.ID) {
			continue
		}
		own = append(own, key)
		if was := before[key]; isOf(was, w.ID) {
			same := manifest.SameRun(was, d.Pods[key])
			former, updated = former || !same, updated || same
		}
	}
	exists, others := false, false
	for key, of := range recorded.Exists {
		if of == w.ID.String() && key.Namespace == w.Key.Namespace {
			exists, others = true, others || len(own) > 0 && key != own[0]
		}
	}
	if len(own) == 1 && !others {
		return // it ends before it starts anew, as after any edit
	}
	if former || exists && !updated {
		for _, key := range own {
			delete(d.Pods, key)
		}
	}
}
