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

// chooseRevision chooses the pod revision that this worker runs, from the newest desire. It does
// nothing if that has not changed since.
func (w *worker) chooseRevision(seen pod.Observed) {
	d, unread := w.mailbox.read()
	if !unread {
		return
	}
	want, bad, desired := d.pod, d.bad, d.all
	w.learn(d.objects)
	w.maxGrace = nil
	if desired != nil {
		w.maxGrace = desired.Grace
	}
	before := w.pod
	w.resized = nil
	w.resumeUnwanted(seen)
	w.pod, w.problem = w.choose(want, desired, seen), bad
	if before != nil && w.replaced && (w.pod == nil || w.pod.UID != before.UID) {
		w.unwanted[before.UID] = true // it is still being terminated
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

// choose returns the desired pod under the UID that it runs with: that of the running revision if
// the manifest needs no new containers. A pod without a manifest is not desired, unless its
// manifest only cannot be read at the moment.
func (w *worker) choose(want *v1.Pod, desired *manifest.Desired, seen pod.Observed) *v1.Pod {
	running := w.running(seen)
	switch {
	case want != nil && running != nil:
		if seen.Owner != "" && seen.Owner != w.o.Owner {
			w.log.Info("adopting a pod that another podrun command started", "command", seen.Owner)
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

// noteUnwanted remembers which revisions are being terminated. A revision that is desired again
// meanwhile starts from the beginning, as in Kubernetes: an instance that was asked to terminate
// has not crashed, and a terminated job has not completed.
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

// running returns the manifest of the newest revision on the machine, or nil if it is not known.
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
			w.log.Warn("reading the manifest of a running pod failed", "uid", uid, "err", err)
		}
		return nil
	}
	return manifest.Upgraded(p)
}

// final reports that p, which is on the machine, has reached its final phase and is not run again.
func (w *worker) final(p *v1.Pod, seen pod.Observed) bool {
	return plan.Final(plan.Input{
		Pod: p, Since: w.since(p), Observed: w.steady(seen), Probed: w.probed(seen), Evicted: w.measure.why,
		Boot: w.o.Boot, Earlier: w.earlier, Now: time.Now(),
	})
}

// since returns when p's revision began, as a monotonic time of this process.
func (w *worker) since(p *v1.Pod) time.Time {
	since, _ := time.Parse(time.RFC3339Nano, p.Annotations[manifest.AnnotationSeen])
	return w.clock.monotonic(string(p.UID), since)
}

// newest returns the newest revision on the machine.
func newest(seen pod.Observed) (pod.UID, bool) {
	if len(seen.Data) == 0 {
		return "", false
	}
	return seen.Data[0], true
}

// adopt returns want under the UID that it is to run with: running's if want needs no new
// containers.
func (w *worker) adopt(want, running *v1.Pod, seen pod.Observed) *v1.Pod {
	if !manifest.SameRun(running, want) {
		w.replaced = running.UID == want.UID
		return want
	}
	kept := want.DeepCopy()
	if w.final(running, seen) {
		// The result is judged by the deadline that the pod ran with: Kubernetes' terminal phases
		// are final.
		kept.Spec.ActiveDeadlineSeconds = running.Spec.ActiveDeadlineSeconds
	}
	manifest.SetUID(kept, running.UID)
	manifest.KeepConfig(kept, running)
	if seen := running.Annotations[manifest.AnnotationSeen]; seen != "" {
		metaAnnotation(kept, manifest.AnnotationSeen, seen)
	}
	if !pod.SameSize(running, kept) {
		// The pod keeps its allocated resources until the new ones are allocated.
		w.resized = kept
		kept = pod.Sized(kept, running)
	}
	// Every change of any manifest calls this: save skips a pod that has not changed.
	w.save(kept)
	return kept
}

// save saves the manifest that an existing revision runs.
func (w *worker) save(p *v1.Pod) {
	if equality.Semantic.DeepEqual(w.saved, p) {
		return
	}
	if err := w.o.Data.SavePod(p, w.o.Owner); err != nil {
		w.log.Warn("saving the manifest of a running pod failed", "uid", p.UID, "err", err)
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
