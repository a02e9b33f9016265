package plan

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// manifestOf returns a manifest with a UID and an image.
func manifestOf(uid pod.UID, image string) *v1.Pod {
	p := wanted(v1.RestartPolicyAlways, "a")
	p.UID, p.Spec.Containers[0].Image = uid, image
	return p
}

// TestSelectRevision: which revision is kept follows from the manifest, from what runs and from the
// revision before.
func TestSelectRevision(t *testing.T) {
	t.Parallel()
	running, next, fixed := manifestOf("u1", "a:1"), manifestOf("u2", "a:2"), manifestOf("u1", "a:2")
	resized := manifestOf("u1", "a:1")
	unwanted := pod.Observed{Containers: []pod.Container{{UID: "u2", Notes: pod.Notes{Unwanted: true}}}}
	stopping := map[pod.UID]bool{"u1": true}
	for name, tt := range map[string]struct {
		before              Selection
		in                  RevisionInput
		want                *v1.Pod
		replaced, undecided bool
		unwanted            pod.UID
	}{
		"first":                  {in: RevisionInput{Wanted: next}, want: next},
		"edit":                   {in: RevisionInput{Wanted: next, Running: running}, want: next},
		"edit in place":          {in: RevisionInput{Wanted: next, Running: running, Adopted: running, Resized: resized}, want: running},
		"another one, fixed UID": {in: RevisionInput{Wanted: fixed, Running: running}, want: fixed, replaced: true},
		"wanted again":           {in: RevisionInput{Wanted: next, Observed: unwanted}, want: next, replaced: true},
		"wanted again, in this process": {
			before: Selection{Unwanted: stopping}, in: RevisionInput{Wanted: running, Running: running, Adopted: running},
			want: running, replaced: true,
		},
		"removed":         {before: Selection{Pod: running}, in: RevisionInput{Running: running}},
		"cannot be read":  {in: RevisionInput{Running: running, Kept: true}, want: running},
		"nothing is kept": {in: RevisionInput{Kept: true}},
		"cannot be read, but was being terminated": {
			before: Selection{Unwanted: stopping}, in: RevisionInput{Running: running, Kept: true}, unwanted: "u1",
		},
		"sources incomplete":         {in: RevisionInput{Incomplete: true}, undecided: true},
		"sources incomplete, wanted": {in: RevisionInput{Wanted: next, Incomplete: true}, want: next},
		"removed while it is replaced": {
			before: Selection{Pod: running, Replaced: true}, in: RevisionInput{}, replaced: true, unwanted: "u1",
		},
	} {
		r := SelectRevision(tt.before, tt.in)
		if r.Pod != tt.want || r.Resized != tt.in.Resized || r.Replaced != tt.replaced || r.Undecided != tt.undecided {
			t.Errorf("%s: %+v", name, r)
		}
		if tt.unwanted != "" && !r.Unwanted[tt.unwanted] {
			t.Errorf("%s: %s is not unwanted", name, tt.unwanted)
		}
	}
	if len(stopping) != 1 || !stopping["u1"] {
		t.Errorf("the map of the revision before was changed: %v", stopping)
	}
}

// TestTerminating: revisions that are being terminated are remembered, in a map of the new value
// alone, until nothing of them is left.
func TestTerminating(t *testing.T) {
	t.Parallel()
	r := Selection{Pod: manifestOf("u2", "a:2")}
	seen := pod.Observed{Containers: []pod.Container{{UID: "u1"}, {UID: "u2"}}}
	if after := r.Terminating(seen, Plan{}); len(after.Unwanted) > 0 {
		t.Errorf("%v without an action", after.Unwanted)
	}
	after := r.Terminating(seen, Plan{Actions: []Action{Kill{}}})
	if !after.Unwanted["u1"] || after.Unwanted["u2"] || len(r.Unwanted) > 0 {
		t.Errorf("%v, before %v", after.Unwanted, r.Unwanted)
	}
	if last := after.Terminating(pod.Observed{}, Plan{}); len(last.Unwanted) > 0 {
		t.Errorf("%v of nothing", last.Unwanted)
	}
}
