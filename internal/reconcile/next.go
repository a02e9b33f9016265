package reconcile

import (
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/reconcile/revision"
)

// next returns the state that follows s when the desire d has been read. in is complete but for what
// follows from d.
func next(s revision.State, d desiredPod, in plan.RevisionInput) revision.State {
	if d.all != nil {
		in.Kept, in.Incomplete = in.Running != nil && d.all.Keeps(in.Running), !d.all.Complete
	}
	before := s.Pod
	s.Selection = plan.SelectRevision(s.Selection, in)
	s.MaxGrace, s.Problem = nil, d.bad
	if d.all != nil {
		s.MaxGrace = d.all.Grace
		if s.Pod != nil {
			s.Problem = d.all.PodProblems().Of(s.Pod)
		}
	}
	s.Stale = s.Stale || before != s.Pod
	return s
}
