package reconcile

import (
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile/revision"
)

// TestNextState: the next state follows from the desire, from what runs and from the state before.
func TestNextState(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{}
	p.Name, p.Namespace, p.UID = "web", "default", "u1"
	key := pod.KeyOf(p)
	for name, tc := range map[string]struct {
		before           revision.State
		desired          desiredPod
		in               plan.RevisionInput
		want             *v1.Pod
		undecided, stale bool
		problem          string
		grace            *time.Duration
	}{
		"wanted":              {desired: desiredPod{pod: p, bad: "typo"}, in: plan.RevisionInput{Wanted: p}, want: p, stale: true, problem: "typo"},
		"not edited":          {before: revision.State{Selection: plan.Selection{Pod: p}}, desired: desiredPod{pod: p}, in: plan.RevisionInput{Wanted: p}, want: p},
		"removed":             {before: revision.State{Selection: plan.Selection{Pod: p}}, desired: desiredPod{all: &manifest.Desired{Complete: true, Grace: new(time.Second)}}, in: plan.RevisionInput{Running: p}, stale: true, grace: new(time.Second)},
		"its manifest is bad": {desired: desiredPod{all: &manifest.Desired{Complete: true, Problems: []manifest.Problem{{Key: key, Err: errors.New("typo")}}}}, in: plan.RevisionInput{Running: p}, want: p, stale: true, problem: "typo"},
		"sources incomplete":  {desired: desiredPod{all: &manifest.Desired{}}, undecided: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := next(tc.before, tc.desired, tc.in)
			if s.Pod != tc.want || s.Undecided != tc.undecided || s.Stale != tc.stale {
				t.Errorf("%v, undecided %v, stale %v", s.Pod, s.Undecided, s.Stale)
			}
			if s.Problem != tc.problem || (s.MaxGrace == nil) != (tc.grace == nil) {
				t.Errorf("problem %q, longest grace period %v", s.Problem, s.MaxGrace)
			}
		})
	}
}
