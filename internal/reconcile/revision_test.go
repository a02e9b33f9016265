package reconcile

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
)

// revision returns a manifest with a UID and an image.
func revision(uid pod.UID, image string) *v1.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a", Image: image}}}}
	p.Name, p.Namespace, p.UID = "web", "default", uid
	return p
}

// TestChoice: the next state follows from the desire, from what runs and from the state before.
func TestChoice(t *testing.T) {
	t.Parallel()
	running, next, same := revision("u1", "a:1"), revision("u2", "a:2"), revision("u2", "a:1")
	fixed := revision("u1", "a:2")
	incomplete := &manifest.Desired{}
	complete := &manifest.Desired{Complete: true}
	unwanted := pod.Observed{Containers: []pod.Container{{UID: "u2", Notes: pod.Notes{Unwanted: true}}}}
	for name, tc := range map[string]struct {
		before                  state
		choice                  choice
		uid                     pod.UID
		replaced, unsure, stale bool
	}{
		"first":              {choice: choice{desire: desire{pod: next}}, uid: "u2", stale: true},
		"edit":               {choice: choice{desire: desire{pod: next}, running: running}, uid: "u2", stale: true},
		"same run":           {choice: choice{desire: desire{pod: same}, running: running, same: true}, uid: "u1", stale: true},
		"fixed UID":          {choice: choice{desire: desire{pod: fixed}, running: running}, uid: "u1", replaced: true, stale: true},
		"desired again":      {choice: choice{desire: desire{pod: next}, seen: unwanted}, uid: "u2", replaced: true, stale: true},
		"removed":            {before: state{pod: running}, choice: choice{desire: desire{all: complete}, running: running}, stale: true},
		"sources incomplete": {choice: choice{desire: desire{all: incomplete}}, unsure: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := tc.choice.next(tc.before)
			if (s.pod == nil) != (tc.uid == "") || s.pod != nil && s.pod.UID != tc.uid {
				t.Errorf("chose %v", s.pod)
			}
			if s.replaced != tc.replaced || s.unsure != tc.unsure || s.stale != tc.stale {
				t.Errorf("replaced %v, unsure %v, stale %v", s.replaced, s.unsure, s.stale)
			}
		})
	}
}

// TestTerminating: revisions that are being terminated are remembered, in a map of the new state
// alone, until nothing of them is left.
func TestTerminating(t *testing.T) {
	t.Parallel()
	s := state{pod: revision("u2", "a:2")}
	seen := pod.Observed{Containers: []pod.Container{{UID: "u1"}, {UID: "u2"}}}
	if after := s.terminating(seen, plan.Plan{}); len(after.unwanted) > 0 {
		t.Errorf("%v without an action", after.unwanted)
	}
	after := s.terminating(seen, plan.Plan{Actions: []plan.Action{plan.Kill{}}})
	if !after.unwanted["u1"] || after.unwanted["u2"] || len(s.unwanted) > 0 {
		t.Errorf("%v, before %v", after.unwanted, s.unwanted)
	}
	if end := after.terminating(pod.Observed{}, plan.Plan{}); len(end.unwanted) > 0 {
		t.Errorf("%v of nothing", end.unwanted)
	}
}
