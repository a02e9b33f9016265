package plan

import (
	"maps"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Selection says which revision of a pod is kept, and which others are being terminated. It is
// passed by value: who gets it cannot change the original.
type Selection struct {
	// Pod is the revision that runs or is to run; nil if the pod is not wanted.
	Pod *v1.Pod
	// Resized is Pod with the CPU and memory of its manifest while these are not allocated yet; nil if they are.
	Resized *v1.Pod
	// Replaced reports that what exists under Pod's UID belongs to another manifest, or was being terminated.
	Replaced bool
	// Refused is why the policy does not allow Pod; "" if it does.
	Refused string
	// Undecided reports that the sources of manifests are incomplete: the pod is neither run nor removed.
	Undecided bool
	// Unwanted are the revisions of which something has been terminated because they were not wanted. If one of them is
	// wanted again before nothing of it is left, it starts from the beginning. The map is replaced, never changed.
	Unwanted map[pod.UID]bool
}

// RevisionInput is what SelectRevision decides from, beside the revision before.
type RevisionInput struct {
	// Wanted is the pod as its newest manifest has it; nil if no manifest names the pod.
	Wanted *v1.Pod
	// Running is the manifest of the newest revision on the machine; nil if there is none or if its
	// manifest is not known.
	Running *v1.Pod
	// Adopted is Wanted under the UID of Running and with the resources that Running has been allocated, and Resized is
	// the same with Wanted's resources, if they differ. Adopted is nil if Wanted needs new containers.
	Adopted, Resized *v1.Pod
	// Kept reports that no valid manifest names the pod, but that an unreadable source or an invalid manifest may
	// (manifest.Desired.Keeps): Running is then kept. Incomplete reports that not all sources have been read.
	Kept, Incomplete bool
	// Refused is why the policy does not allow Wanted or, without it, Running; "" if it does.
	Refused  string
	Observed pod.Observed
}

// SelectRevision returns which of the revisions of a pod is kept, after the one before: that of the
// newest manifest, under the UID of the running revision if that needs no new containers. A pod
// without a manifest is not wanted, unless its manifest only cannot be read at the moment.
//
// A revision that was being terminated and is wanted again starts from the beginning, as in Kubernetes: an instance
// that was asked to terminate has not crashed, and a terminated job has not completed.
func SelectRevision(before Selection, in RevisionInput) Selection {
	s := Selection{Replaced: before.Replaced, Refused: in.Refused, Unwanted: map[pod.UID]bool{}}
	maps.Copy(s.Unwanted, before.Unwanted)
	// An earlier podrun process began to terminate these revisions because they were not wanted.
	for _, c := range in.Observed.Containers {
		if c.Notes.Unwanted {
			s.Unwanted[c.UID] = true
		}
	}
	switch {
	case in.Adopted != nil:
		s.Pod, s.Resized = in.Adopted, in.Resized
	case in.Wanted != nil:
		s.Pod = in.Wanted
		if in.Running != nil {
			s.Replaced = in.Running.UID == in.Wanted.UID
		}
	case in.Kept && in.Running != nil && !s.Unwanted[in.Running.UID]:
		s.Pod = in.Running
	}
	if before.Pod != nil && s.Replaced && (s.Pod == nil || s.Pod.UID != before.Pod.UID) {
		s.Unwanted[before.Pod.UID] = true // it is still being terminated
	}
	if s.Pod != nil && s.Unwanted[s.Pod.UID] {
		s.Replaced = true
		delete(s.Unwanted, s.Pod.UID)
	}
	s.Undecided = s.Pod == nil && in.Incomplete
	return s
}

// Terminating returns s after the plan p for what was observed. It records which revisions are being
// terminated, until nothing of them is left.
func (s Selection) Terminating(seen pod.Observed, p Plan) Selection {
	old := seen
	if s.Pod != nil {
		_, old = seen.Split(s.Pod.UID)
	}
	switch {
	case old.Empty():
		s.Unwanted = nil
		return s
	case len(p.Actions) == 0:
		return s
	}
	unwanted := map[pod.UID]bool{}
	maps.Copy(unwanted, s.Unwanted)
	for _, c := range old.Containers {
		unwanted[c.UID] = true
	}
	for _, sandbox := range old.Sandboxes {
		unwanted[sandbox.UID] = true
	}
	for _, uid := range old.Data {
		unwanted[uid] = true
	}
	s.Unwanted = unwanted
	return s
}

// Unwants reports whether the instance c belongs to a revision that is not kept.
func (s Selection) Unwants(c pod.Container) bool {
	return s.Pod == nil || c.UID != s.Pod.UID || s.Replaced
}
