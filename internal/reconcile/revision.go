package reconcile

import (
	"maps"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// choice is what the revision of a pod is chosen from.
type choice struct {
	desire  desire
	seen    pod.Observed
	running *v1.Pod // the manifest of the newest revision on the machine; nil: not known
	same    bool    // desire's manifest needs no new containers in place of running's
	final   bool    // running has reached its final phase and is not run again
}

// next returns the state that follows s.
func (c choice) next(s state) state {
	before, d := s.pod, c.desire
	s.maxGrace, s.resized = nil, nil
	if d.all != nil {
		s.maxGrace = d.all.Grace
	}
	s.unwanted = maps.Clone(s.unwanted)
	if s.unwanted == nil {
		s.unwanted = map[pod.UID]bool{}
	}
	// An earlier podrun process began to terminate these revisions because they were not desired.
	for _, c := range c.seen.Containers {
		if c.Notes.Unwanted {
			s.unwanted[c.UID] = true
		}
	}
	s = c.revision(s)
	s.problem = d.bad
	if before != nil && s.replaced && (s.pod == nil || s.pod.UID != before.UID) {
		s.unwanted[before.UID] = true // it is still being terminated
	}
	if s.pod != nil && s.unwanted[s.pod.UID] {
		s.replaced = true
		delete(s.unwanted, s.pod.UID)
	}
	s.unsure = s.pod == nil && d.all != nil && !d.all.Complete
	if d.all != nil && s.pod != nil {
		s.problem = d.all.Blame().Of(s.pod)
	}
	s.stale = s.stale || before != s.pod
	return s
}

// revision returns s with the desired pod under the UID that it runs with: that of the running
// revision if the manifest needs no new containers. A pod without a manifest is not desired, unless
// its manifest only cannot be read at the moment.
func (c choice) revision(s state) state {
	want, all := c.desire.pod, c.desire.all
	switch {
	case want != nil && c.same:
		s.pod, s.resized = manifest.Adopt(want, c.running, c.final)
	case want != nil:
		s.pod = want
		if c.running != nil {
			s.replaced = c.running.UID == want.UID
		}
	case all != nil && c.running != nil && all.Keeps(c.running) && !s.unwanted[c.running.UID]:
		s.pod = c.running
	default:
		s.pod = nil
	}
	return s
}

// terminating returns s after plan p. It remembers which revisions are being terminated. A revision
// that is desired again meanwhile starts from the beginning, as in Kubernetes: an instance that was
// asked to terminate has not crashed, and a terminated job has not completed.
func (s state) terminating(seen pod.Observed, p plan.Plan) state {
	old := seen
	if s.pod != nil {
		_, old = seen.Split(s.pod.UID)
	}
	switch {
	case old.Empty():
		s.unwanted = nil
		return s
	case len(p.Actions) == 0:
		return s
	}
	unwanted := map[pod.UID]bool{}
	maps.Copy(unwanted, s.unwanted)
	for _, c := range old.Containers {
		unwanted[c.UID] = true
	}
	for _, s := range old.Sandboxes {
		unwanted[s.UID] = true
	}
	for _, uid := range old.Data {
		unwanted[uid] = true
	}
	s.unwanted = unwanted
	return s
}
