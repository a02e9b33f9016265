// Package revisions decides which revision of a pod or workload runs: the one that its manifest has or, if that
// does not become healthy in time, the one that was healthy last.
//
// It is pure: it reads no manifest, starts nothing, and remembers nothing.
//
// Begin reading at Judge.
package revisions

import (
	"cmp"
	"errors"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Revision is what a manifest said of a pod, or of the pods of a workload, at one time.
type Revision struct {
	// ID is the same for the same manifest with the same ConfigMaps and Secrets.
	ID string `json:"id"`
	// Template is the pod, or the template of the workload's pods.
	Template *v1.Pod `json:"template"`
	// Config is the hash of the ConfigMaps and Secrets of pods that an edit of these replaces; "" for others, which
	// have no ConfigMaps and Secrets here either.
	Config string `json:"config,omitempty"`
	// ConfigMaps and Secrets are those that the pods refer to, by name. Secrets are not stored, and neither are
	// ConfigMaps that are too large together.
	ConfigMaps map[string]*v1.ConfigMap `json:"configMaps,omitempty"`
	Secrets    map[string]*v1.Secret    `json:"-"`
	// Images are the digests of the images that its containers ran when it was healthy, by the references that Template
	// has for them. A digest says what a reference meant then.
	Images map[string]string `json:"images,omitempty"`
}

// History is what is recorded of the revisions of a pod or workload. It is never modified.
type History struct {
	// Good is the revision that was healthy last, and Previous the one that was before it. nil: none was.
	Good     *Revision `json:"good,omitempty"`
	Previous *Revision `json:"previous,omitempty"`
	// Tried is the ID of the revision that is not healthy yet, and Began when it was first to run.
	Tried string    `json:"tried,omitempty"`
	Began time.Time `json:"began,omitzero"`
	// Overdue says that the tried revision has not become healthy in time, and that there is none to go back to.
	Overdue bool `json:"overdue,omitempty"`
	// RolledBack is the ID of the revision that Good runs in place of, as long as the manifest has it.
	RolledBack string `json:"rolledBack,omitempty"`
	// Pinned says that Good runs with the Images that it had: it was rolled back to, and the manifest may have been
	// edited back to it since; or its images are updated, so that their references may refer to what is not tried yet.
	Pinned bool `json:"pinned,omitempty"`
	// Updates are the digests of the images that pods with pod.AnnotationAutoUpdate are to run instead of those that
	// their references referred to before, by reference. The revision that the manifest has includes them.
	Updates map[string]string `json:"updates,omitempty"`
	// Failed are the digests among Updates that were rolled back, by reference, and FailedIn identifies what the
	// manifest was then, without updates. What the manifest becomes by an edit does not include them.
	Failed   map[string]string `json:"failed,omitempty"`
	FailedIn string            `json:"failedIn,omitempty"`
	// Past are the outcomes of the revisions, the newest last.
	Past []Outcome `json:"past,omitempty"`
}

// Valid returns an error if the history cannot be one that podrun has recorded: its file was damaged.
func (h *History) Valid() error {
	for _, r := range []*Revision{h.Good, h.Previous} {
		if r != nil && (r.ID == "" || r.Template == nil || len(r.Template.Spec.Containers) == 0) {
			return errors.New("a revision has no pod")
		}
	}
	if h.Good == nil && h.Tried == "" && len(h.Past) == 0 {
		return errors.New("it has no revision")
	}
	return nil
}

// MaxPast is how many outcomes a History has.
const MaxPast = 10

// Result is what became of a revision.
type Result string

// The results.
const (
	Healthy    Result = "Healthy"
	RolledBack Result = "RolledBack"
	// Failed is a revision that did not become healthy in time while there was none to go back to.
	Failed Result = "Failed"
	// Superseded is a revision that was edited before it was healthy.
	Superseded Result = "Superseded"
	// Progressing is a revision without an outcome yet; none is recorded with it.
	Progressing Result = "Progressing"
)

// Outcome is the result of a revision.
type Outcome struct {
	ID     string    `json:"id"`
	Result Result    `json:"result"`
	Reason string    `json:"reason,omitempty"`
	Began  time.Time `json:"began,omitzero"`
	Ended  time.Time `json:"ended"`
}

// State is the health of the pods of a revision.
type State int

// The states.
const (
	// Starting pods are not healthy yet.
	Starting State = iota
	// Well pods are healthy.
	Well
	// Broken pods cannot become healthy any more.
	Broken
)

// Health is the health of the pods of a revision that runs.
type Health struct {
	State
	// Reason says why pods are not healthy.
	Reason string
	// Wait is after what time they may be healthy though nothing else changes; 0: never.
	Wait time.Duration
	// Unsure says that only an inspection can tell.
	Unsure bool
}

// Input is what Judge decides from.
type Input struct {
	// History is what was recorded last; nil: nothing.
	History *History
	// Wanted is the revision that the manifest has.
	Wanted *Revision
	// Health is that of Wanted's pods, and Images the digests of the images that they run, by reference.
	Health Health
	Images map[string]string
	// Updates are the digests that Wanted includes, as in History; nil if its images are not updated. Manifest
	// identifies what the manifest is without them.
	Updates  map[string]string
	Manifest string
	// Tried is for how long the revision History.Tried is being tried, without the time in which podrun did not run.
	Tried time.Duration
	// Deadline is for how long a revision may be tried.
	Deadline time.Duration
	// Undo asks to go back from Wanted.
	Undo bool
	Now  time.Time
}

// Verdict is what Judge decides.
type Verdict struct {
	// History is to be recorded before anything is done.
	History *History
	// Use is the revision to run.
	Use *Revision
	// Wait is after what time to judge again even if nothing changes; 0: never.
	Wait time.Duration
}

// Undone is why a revision is rolled back that podrun undo goes back from.
const Undone = "podrun undo"

// Undo asks to go back from a revision of a pod or workload. Another revision is not affected.
type Undo struct{ Kind, Namespace, Name, Revision string }

// CanUndo returns the revision that runs, and whether there is one to go back to.
func (h *History) CanUndo() (running string, can bool) {
	switch {
	case h.Tried != "":
		return h.Tried, h.Good != nil
	case h.Good != nil:
		return h.Good.ID, h.RolledBack == "" && h.Previous != nil
	}
	return "", false
}

// Judge decides which revision runs now.
func Judge(in Input) Verdict {
	h := History{}
	if in.History != nil {
		h = *in.History
	}
	h.Updates = in.Updates
	wanted := in.Wanted
	switch {
	case h.Good != nil && h.RolledBack == wanted.ID:
		return Verdict{History: &h, Use: h.Good}
	case h.Good != nil && h.Good.ID == wanted.ID:
		h.supersede(in.Now)
		h.RolledBack = ""
		if in.Undo && h.Previous != nil {
			h.Past = appended(h.Past, Outcome{wanted.ID, RolledBack, Undone, time.Time{}, in.Now})
			h.Good, h.Previous = h.Previous, nil
			return h.rollBack(in)
		}
		return Verdict{History: &h, Use: wanted}
	case h.Tried != wanted.ID:
		h.supersede(in.Now)
		h.RolledBack, h.Tried, h.Began = "", wanted.ID, in.Now
		return Verdict{History: &h, Use: wanted, Wait: in.Deadline}
	case in.Undo && h.Good != nil:
		h.end(RolledBack, Undone, in.Now)
		return h.rollBack(in)
	case in.Health.State == Well:
		h.end(Healthy, "", in.Now)
		good := *wanted
		good.Images = in.Images
		h.Previous, h.Good, h.Pinned = h.Good, &good, in.Updates != nil
		return Verdict{History: &h, Use: wanted}
	case h.Overdue:
		return Verdict{History: &h, Use: wanted, Wait: in.Health.Wait}
	case in.Health.State == Starting && in.Tried < in.Deadline:
		return Verdict{History: &h, Use: wanted, Wait: sooner(in.Deadline-in.Tried, in.Health.Wait)}
	case h.Good == nil:
		h.Past = appended(h.Past, Outcome{wanted.ID, Failed, in.Health.Reason, h.Began, in.Now})
		h.Overdue = true
		return Verdict{History: &h, Use: wanted, Wait: in.Health.Wait}
	}
	h.end(RolledBack, "not healthy in time: "+in.Health.Reason, in.Now)
	return h.rollBack(in)
}

// rollBack makes Good run in place of what is wanted, and takes note of the updates that fail so: those that Good does
// not run.
func (h *History) rollBack(in Input) Verdict {
	h.RolledBack, h.Pinned = in.Wanted.ID, true
	failed := maps.Clone(h.Failed)
	for ref, digest := range in.Updates {
		if h.Good.Images[ref] == digest {
			continue
		}
		if failed == nil {
			failed = map[string]string{}
		}
		failed[ref], h.FailedIn = digest, in.Manifest
	}
	h.Failed = failed
	return Verdict{History: h, Use: h.Good}
}

// Held returns, by digest, the images that a rollback would run or that pods were updated to. Their tags may refer to
// others meanwhile.
func (h *History) Held() []string {
	all := []map[string]string{h.Updates}
	if h.Good != nil {
		all = append(all, h.Good.Images)
	}
	var refs []string
	for _, digests := range all {
		for ref, digest := range digests {
			refs = append(refs, Pinned(ref, digest))
		}
	}
	return refs
}

// Update returns the digest that the image of a reference is to have, of what the manifest is: newer if it is not "",
// else what it was updated to before; "" if it is not updated. h may be nil.
func (h *History) Update(ref, newer, manifest string) string {
	if h == nil {
		return newer
	}
	digest := cmp.Or(newer, h.Updates[ref])
	if h.Tried != "" && !h.Overdue { // one after the other
		digest = cmp.Or(h.Updates[ref], digest)
	}
	if failed := h.Failed[ref]; digest == "" || digest != failed || h.RolledBack != "" && h.FailedIn == manifest {
		return digest
	}
	if h.Good == nil {
		return ""
	}
	return h.Good.Images[ref]
}

// Pinned returns the reference of the image with this digest.
func Pinned(reference, digest string) string { return reference + "@" + digest }

// Pins returns the digests of the images that a revision is to run with, by reference. h may be nil.
func (h *History) Pins(revision string) map[string]string {
	if h == nil || h.Good == nil || h.Good.ID != revision || !h.Pinned {
		return nil
	}
	return h.Good.Images
}

// Chosen returns the revision that a history has chosen when wanted is what the manifest has. It is for one for which
// nothing new may be decided. history may be nil.
func Chosen(history *History, wanted string) (use *Revision, rolledBack bool) {
	if history == nil || history.Good == nil || history.RolledBack != wanted {
		return nil, false
	}
	return history.Good, true
}

// Reason returns why the revision that is rolled back was.
func (h *History) Reason() string {
	for i := len(h.Past) - 1; i >= 0; i-- {
		if h.Past[i].ID == h.RolledBack && h.Past[i].Result == RolledBack {
			return h.Past[i].Reason
		}
	}
	return ""
}

// Current returns what has become of the revision that the manifest has; one without a result is being tried. h may be
// nil; nil: nothing is recorded.
func (h *History) Current() *Outcome {
	switch {
	case h == nil:
		return nil
	case h.RolledBack != "":
		return h.outcome(h.RolledBack, RolledBack)
	case h.Overdue:
		return h.outcome(h.Tried, Failed)
	case h.Tried != "":
		return &Outcome{ID: h.Tried, Began: h.Began}
	case h.Good != nil:
		return h.outcome(h.Good.ID, Healthy)
	}
	return nil
}

// Outcomes returns which revision runs, and what became of the last ones, the oldest first; the one that is being tried
// is the last, and Progressing.
func (h *History) Outcomes() (current string, all []Outcome) {
	all = append([]Outcome{}, h.Past...)
	if h.Good != nil {
		current = h.Good.ID
	}
	if h.Tried == "" {
		return current, all
	}
	if !h.Overdue {
		all = append(all, Outcome{ID: h.Tried, Result: Progressing, Began: h.Began})
	}
	return h.Tried, all
}

// outcome returns the last outcome of a revision with this result; without times if it is too long ago to be recorded.
func (h *History) outcome(id string, result Result) *Outcome {
	for i := len(h.Past) - 1; i >= 0; i-- {
		if o := h.Past[i]; o.ID == id && o.Result == result {
			return &o
		}
	}
	return &Outcome{ID: id, Result: result}
}

// supersede ends the trial of a revision that the manifest does not have any more.
func (h *History) supersede(now time.Time) {
	if h.Tried != "" && !h.Overdue {
		h.end(Superseded, "", now)
	}
	h.Tried, h.Began, h.Overdue = "", time.Time{}, false
}

// end ends the trial of a revision.
func (h *History) end(result Result, reason string, now time.Time) {
	h.Past = appended(h.Past, Outcome{h.Tried, result, reason, h.Began, now})
	h.Tried, h.Began, h.Overdue = "", time.Time{}, false
}

func appended(past []Outcome, o Outcome) []Outcome {
	all := append(append([]Outcome{}, past...), o)
	return all[max(len(all)-MaxPast, 0):]
}

// sooner returns the shorter of two waits, of which b may be 0: never.
func sooner(a, b time.Duration) time.Duration {
	if b > 0 && b < a {
		return b
	}
	return a
}

// Change is what an event tells of a revision.
type Change struct {
	Reason, Message string
	Warning         bool
}

// Event returns what has become of a revision between two histories of the same pod or workload, and whether anything
// has. before may be nil.
func Event(before, after *History) (Change, bool) {
	n := len(after.Past)
	if n == 0 || before != nil && len(before.Past) > 0 && before.Past[len(before.Past)-1] == after.Past[n-1] {
		return Change{}, false
	}
	switch last := after.Past[n-1]; last.Result {
	case Healthy:
		return Change{"RevisionHealthy", "Revision " + Short(last.ID) + " is healthy", false}, true
	case RolledBack:
		return Change{
			"RolledBack", "Revision " + Short(last.ID) + " is rolled back to " + Short(after.Good.ID) + ": " +
				last.Reason, true,
		}, true
	case Failed:
		return Change{
			"ProgressDeadlineExceeded", "Revision " + Short(last.ID) + " was not healthy in time, and there is none " +
				"to go back to: " + last.Reason, true,
		}, true
	}
	return Change{}, false
}

// Short returns the beginning of the ID of a revision, for people.
func Short(id string) string { return id[:min(len(id), 10)] }
