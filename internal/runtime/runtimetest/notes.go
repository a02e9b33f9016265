package runtimetest

import (
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// testNotes records notes of an instance and checks that they are returned until the instance is
// removed.
func testNotes(t *testing.T, s subject) {
	p := s.newPod("notes-node", "uid-notes", "main")
	start := s.ready(t, p)
	c := s.start(t, start)
	if !reflect.DeepEqual(c.Notes, pod.Notes{}) {
		t.Errorf("fresh: %+v", c.Notes)
	}
	now := time.Now().UTC().Round(0)
	e := pod.Notes{
		PostStartDue: true,
		Failed:       &pod.Failed{Why: "failed liveness probe", Message: "a\nb", Grace: new(3 * time.Second)},
		Unwanted:     true,
	}
	must(t, s.Note(p.UID, c.ID, e))
	e.Asked, e.Signalled, e.Hooked = now, now.Add(time.Second), now.Add(time.Millisecond)
	e.HookRuns = 1
	e.Hooking = true // not recorded: it is true only in the process that runs the hook
	must(t, s.Note(p.UID, c.ID, e))
	e.Hooking = false
	is := func(when string) {
		t.Helper()
		if got := s.instance(t, start).Notes; !reflect.DeepEqual(got, e) {
			t.Errorf("%s: %+v, want %+v", when, got, e)
		}
	}
	is("running")
	must(t, s.SignalContainer(t.Context(), c.ID, "KILL"))
	s.ended(t, start)
	is("ended")
	must(t, s.ReapContainer(t.Context(), c.ID, ""))
	is("reaped")
	must(t, s.RemoveContainer(t.Context(), c.ID))
	must(t, s.Note(p.UID, c.ID, e))
	must(t, s.Note(p.UID, "missing", e))
	start.Container.Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 1}}}
	if c = s.start(t, start); c.Notes.Failed != nil || !c.Notes.PostStartDue {
		t.Errorf("its successor, which has a hook: %+v", c.Notes)
	}
	s.remove(t, p)
}
