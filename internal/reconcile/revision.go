package reconcile

import (
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
)

// chooseRevision makes what was set last the pod that this worker works for.
func (w *worker) chooseRevision(seen pod.Observed) {
	w.mu.Lock()
	want, bad, desired, turn, known := w.want, w.bad, w.desired, w.version, w.given
	w.mu.Unlock()
	if turn == w.chosenVersion {
		return
	}
	w.chosenVersion = turn
	w.learn(known)
	w.maxGrace = nil
	if desired != nil {
		w.maxGrace = desired.Grace
	}
	before := w.pod
	w.resized = nil
	w.resumeUnwanted(seen)
	w.pod, w.problem = w.choose(want, desired, seen), bad
	if before != nil && w.replaced && (w.pod == nil || w.pod.UID != before.UID) {
		w.unwanted[before.UID] = true // it is being ended still
	}
	if w.pod != nil && w.unwanted[w.pod.UID] {
		w.replaced = true
		delete(w.unwanted, w.pod.UID)
	}
	w.unsure = w.pod == nil && desired != nil && !desired.Complete
	if desired != nil && w.pod != nil {
		w.problem = desired.Blame().Of(w.pod)
	}
	if before == nil || w.pod == nil || before.UID != w.pod.UID || w.replaced {
		w.stopPulls()
		clear(w.failures)
	}
	w.recordManifest()
	w.stale = w.stale || before != w.pod
}

// choose settles under which UID the wanted pod runs: that of what runs already, if it needs no new
// containers. Without a manifest the pod goes, unless its manifest only cannot be read now.
func (w *worker) choose(want *v1.Pod, desired *manifest.Desired, seen pod.Observed) *v1.Pod {
	running := w.running(seen)
	switch {
	case want != nil && running != nil:
		if seen.Owner != "" && seen.Owner != w.o.Owner {
			w.log.Info("keeping a pod that another podrun left", "command", seen.Owner)
		}
		return w.adopt(want, running, seen)
	case want != nil:
		return want
	case desired != nil && running != nil && desired.Keeps(running) && !w.unwanted[running.UID]:
		return running
	default:
		return nil
	}
}

// noteUnwanted keeps in mind which revisions are being ended. One that is wanted again meanwhile starts anew,
// as in Kubernetes: what was asked to end has not crashed, and a job of it has not run.
func (w *worker) noteUnwanted(seen pod.Observed, p plan.Plan) {
	old := seen
	if w.pod != nil {
		_, old = seen.Split(w.pod.UID)
	}
	switch {
	case old.Empty():
		clear(w.unwanted)
		return
	case len(p.Actions) == 0:
		return
	}
	for _, c := range old.Containers {
		w.unwanted[c.UID] = true
	}
	for _, s := range old.Sandboxes {
		w.unwanted[s.UID] = true
	}
	for _, uid := range old.Data {
		w.unwanted[uid] = true
	}
}

// running returns the manifest of the newest revision that is there; nil when none is known.
func (w *worker) running(seen pod.Observed) *v1.Pod {
	uid, found := newest(seen)
	if !found {
		return nil
	}
	if w.pod != nil && w.pod.UID == uid {
		return w.pod
	}
	p, err := w.o.Data.LoadPod(uid)
	if err != nil {
		if !errors.Is(err, runtime.ErrNotFound) {
			w.log.Warn("manifest of a running pod not readable", "uid", uid, "why", err)
		}
		return nil
	}
	return manifest.Upgraded(p)
}

// final reports that p, which is there, has come to its end and is not run anew.
func (w *worker) final(p *v1.Pod, seen pod.Observed) bool {
	return plan.Final(plan.Input{
		Pod: p, Since: w.since(p), Observed: w.steady(seen), Probed: w.probed(seen), Evicted: w.measure.why,
		Boot: w.o.Boot, Earlier: w.earlier, Now: time.Now(),
	})
}

// since is when p's revision began, as this process measures time.
func (w *worker) since(p *v1.Pod) time.Time {
	since, _ := time.Parse(time.RFC3339Nano, p.Annotations[manifest.AnnotationSeen])
	return w.clock.monotonic(string(p.UID), since)
}

// newest is the newest revision that is there.
func newest(seen pod.Observed) (pod.UID, bool) {
	if len(seen.Data) == 0 {
		return "", false
	}
	return seen.Data[0], true
}

// adopt returns want under the UID that it shall run with.
func (w *worker) adopt(want, running *v1.Pod, seen pod.Observed) *v1.Pod {
	if !manifest.SameRun(running, want) {
		w.replaced = running.UID == want.UID
		return want
	}
	kept := want.DeepCopy()
	if w.final(running, seen) {
		// Its result is judged by the deadline that it had: Kubernetes' terminal phases are final.
		kept.Spec.ActiveDeadlineSeconds = running.Spec.ActiveDeadlineSeconds
	}
	manifest.SetUID(kept, running.UID)
	manifest.KeepConfig(kept, running)
	if seen := running.Annotations[manifest.AnnotationSeen]; seen != "" {
		metaAnnotation(kept, manifest.AnnotationSeen, seen)
	}
	if !pod.SameSize(running, kept) {
		// What it has been given stays until it is given the other.
		w.resized = kept
		kept = pod.Sized(kept, running)
	}
	// Every change of any manifest comes by here: what has not changed is not written again.
	w.save(kept)
	return kept
}

// save keeps what a pod that is there runs with.
func (w *worker) save(p *v1.Pod) {
	if equality.Semantic.DeepEqual(w.saved, p) {
		return
	}
	if err := w.o.Data.SavePod(p, w.o.Owner); err != nil {
		w.log.Warn("manifest of a running pod not updated", "uid", p.UID, "why", err)
		return
	}
	w.saved = p
}

func metaAnnotation(p *v1.Pod, name, value string) {
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[name] = value
}
