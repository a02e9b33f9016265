package record

import (
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/manifest/rollback"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/revisions"
)

// trials is what is recorded of the revisions of pods and workloads. Only histories are stored. Times are those of a
// clock that nobody sets, and begin again when podrun does: what a revision could not do while podrun or containerd
// did not run does not count.
type trials struct {
	histories map[workload.ID]*revisions.History
	began     map[workload.ID]trial
	seen      map[pod.Key]watched
	// outage returns for how long, all in all, containerd could not be reached.
	outage func() time.Duration
	// updating are the groups (pod.UpdateGroup) of pods of which pods of several templates are desired.
	updating map[string]bool
	// newer are the digests of images that pods are to be updated to.
	newer map[workload.ID]map[string]string
	// undo asks to go back from revisions. It may be nil.
	undo *owner.UndoRequests
	// asks are the requests that the last Recorded has returned.
	asks map[revisions.Undo]bool
}

// undone returns the requests to go back from revisions.
func (t *trials) undone() map[revisions.Undo]bool {
	all := map[revisions.Undo]bool{}
	if t.undo != nil {
		for _, q := range t.undo.All() {
			all[q] = true
		}
	}
	t.asks = all
	return all
}

// answerUndo removes the requests that were decided on: what they ask for is recorded, or cannot be done.
func (t *trials) answerUndo(failed map[workload.ID]bool) {
	for q := range t.asks {
		if !failed[workload.ID{Kind: workload.Kind(q.Kind), Key: pod.Key{Namespace: q.Namespace, Name: q.Name}}] {
			t.undo.Remove(q)
		}
	}
	t.asks = nil
}

// Newer records the digests of images that the pods of id are to be updated to, by reference. They are on this machine.
func (r *Record) Newer(id workload.ID, digests map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := maps.Clone(r.newer[id])
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, digests)
	r.newer[id] = all
	r.notify()
}

// trial is since when a revision is being tried without that another of its pods was ready for the first time, and what
// outage was then.
type trial struct {
	revision string
	at       time.Time
	outage   time.Duration
	ready    map[pod.Key]bool
}

// watched is a pod as it was published last, and since when it is ready without a restart, or has not been ready; zero:
// it is not so.
type watched struct {
	pod                   *v1.Pod
	ready, shown, unready time.Time
}

func newTrials() trials {
	return trials{
		histories: map[workload.ID]*revisions.History{}, began: map[workload.ID]trial{}, seen: map[pod.Key]watched{},
		newer: map[workload.ID]map[string]string{}, outage: func() time.Duration { return 0 },
	}
}

// isTried reports that workloads of a kind, or pods, have revisions.
func isTried(k workload.Kind) bool { return k != workload.Job && k != workload.CronJob }

// saveRevisions stores the histories of revisions, and reports what has changed as events.
func (r *Record) saveRevisions(all map[workload.ID]*revisions.History, failed map[workload.ID]bool) error {
	before := map[workload.ID]*revisions.History{}
	for id := range all {
		before[id] = r.histories[id]
	}
	err := save(r, isTried, r.histories, all, failed)
	for id, h := range r.histories {
		r.begin(id, h)
		if e, is := revisions.Event(before[id], h); is && r.events != nil {
			r.events.Record(r.eventOf(id, e))
			r.log.Info("revision", "of", id, "reason", e.Reason, "message", e.Message)
		}
	}
	for id := range r.began {
		if r.histories[id] == nil {
			delete(r.began, id)
		}
	}
	for id := range r.newer {
		if r.histories[id] == nil { // it is not updated any more
			delete(r.newer, id)
		}
	}
	r.answerUndo(failed)
	return err
}

// begin takes note of since when a revision is being tried.
func (t trials) begin(id workload.ID, h *revisions.History) {
	if t.began[id].revision != h.Tried {
		t.began[id] = trial{h.Tried, time.Now(), t.outage(), map[pod.Key]bool{}}
	}
}

// eventOf returns an event about a pod or a workload.
func (t trials) eventOf(id workload.ID, e revisions.Change) pod.Event {
	about := pod.Event{Kind: string(id.Kind), Key: id.Key, Warning: e.Warning, Reason: e.Reason, Message: e.Message}
	if id.Kind != workload.Pod {
		return about
	}
	about.Kind = ""
	if seen := t.seen[id.Key].pod; seen != nil {
		about.UID = seen.UID
	}
	return about
}

// tried returns for how long the revisions that are being tried have been, since the last progress of an update that
// goes pod by pod.
func (t trials) tried() map[workload.ID]time.Duration {
	all := map[workload.ID]time.Duration{}
	for id, h := range t.histories {
		t.begin(id, h) // if podrun has just started
		if began := t.began[id]; h.Tried != "" {
			all[id] = time.Since(began.at) - (t.outage() - began.outage)
		}
	}
	return all
}

// rolls reports that a pod may be updated by and by.
func rolls(p *v1.Pod) bool {
	switch id, _ := workload.Of(p); id.Kind {
	case workload.Deployment, workload.StatefulSet, workload.DaemonSet:
		return true
	}
	return p.Annotations[pod.AnnotationUpdate] == pod.RollingUpdate
}

// updating returns the groups of which pods of several templates, or more pods than the manifest has, are desired.
func updating(pods map[pod.Key]*v1.Pod) map[string]bool {
	all, templates := map[string]bool{}, map[string]*v1.Pod{}
	for _, p := range pods {
		if !rolls(p) {
			continue
		}
		group, surge := pod.UpdateGroup(p)
		other := templates[group]
		templates[group] = p
		if surge || other != nil && rollback.IDOf(other) != rollback.IDOf(p) {
			all[group] = true
		}
	}
	return all
}

// running returns what is known of the pods whose revisions are recorded, and of those that are updated by and by.
func (t trials) running() map[pod.Key]revisions.Observed {
	all := map[pod.Key]revisions.Observed{}
	for key, s := range t.seen {
		o := revisions.Observed{Pod: s.pod}
		if !s.ready.IsZero() {
			o.Ready, o.Shown = time.Since(s.ready), s.shown.Sub(s.ready)
		} else {
			o.Unready = time.Since(s.unready)
		}
		all[key] = o
	}
	return all
}

// try records the status of a pod whose revisions are recorded, or that is updated by and by.
// Times are those of what was seen, not of the status: one that is published after an action that hung shows what was
// before it.
func (r *Record) try(p *v1.Pod, at time.Time) {
	id, key := rollback.Of(p), pod.KeyOf(p)
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.histories[id]
	if h == nil && !rolls(p) && p.Annotations[pod.AnnotationAutoUpdate] == "" {
		delete(r.seen, key)
		return
	}
	if at.IsZero() {
		at = time.Now()
	}
	before, now := r.seen[key], watched{pod: p, shown: at}
	same := before.pod != nil && before.pod.UID == p.UID && rollback.IDOf(before.pod) == rollback.IDOf(p)
	if pod.IsReady(p) && p.DeletionTimestamp == nil {
		now.ready = now.shown
		if same && !before.ready.IsZero() && pod.Restarts(before.pod) == pod.Restarts(p) {
			now.ready = before.ready
		}
	} else if now.unready = before.unready; now.unready.IsZero() {
		now.unready = now.shown
	}
	r.seen[key] = now
	group, _ := pod.UpdateGroup(p)
	if t := r.began[id]; !now.ready.IsZero() && r.updating[group] && t.revision == rollback.IDOf(p) && !t.ready[key] {
		t.at, t.outage, t.ready[key] = time.Now(), r.outage(), true
		r.began[id] = t
	}
	changed := !same || before.ready != now.ready || before.pod.Status.Phase != p.Status.Phase
	asked := p.Annotations[pod.AnnotationAutoUpdate] != "" && imageIDs(before.pod) != imageIDs(p)
	if changed && (h != nil && h.Tried != "" || r.updating[group]) || asked { // else nothing is decided by it
		r.notify()
	}
}

// imageIDs returns the IDs of the images that the containers of a pod run. p may be nil.
func imageIDs(p *v1.Pod) string {
	if p == nil {
		return ""
	}
	var all []string
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		all = append(all, s.ImageID)
	}
	return strings.Join(all, " ")
}
