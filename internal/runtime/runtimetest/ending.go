package runtimetest

import (
	"reflect"
	"testing"
	"time"

	"podrun.io/podrun/internal/pod"
)

// testEnding notes down how an instance is ended, and finds it until the instance is removed.
func testEnding(t *testing.T, s subject) {
	p := s.newPod("ending-node", "uid-ending", "main")
	start := s.ready(t, p)
	c := s.start(t, start)
	if !reflect.DeepEqual(c.Ending, pod.Ending{}) {
		t.Errorf("fresh: %+v", c.Ending)
	}
	now := time.Now().UTC().Round(0)
	e := pod.Ending{Failed: &pod.Failed{Why: "failed liveness probe", Message: "a\nb", Grace: new(3 * time.Second)}, Unwanted: true}
	must(t, s.NoteEnding(p.UID, c.ID, e))
	e.Asked, e.Told, e.Hooked = now, now.Add(time.Second), now.Add(time.Millisecond)
	e.Hooking = true // this podrun's own
	must(t, s.NoteEnding(p.UID, c.ID, e))
	e.Hooking = false
	is := func(when string) {
		t.Helper()
		if got := s.instance(t, start).Ending; !reflect.DeepEqual(got, e) {
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
	must(t, s.NoteEnding(p.UID, c.ID, e))
	must(t, s.NoteEnding(p.UID, "missing", e))
	if c = s.start(t, start); c.Ending.Failed != nil {
		t.Errorf("its successor: %+v", c.Ending)
	}
	s.remove(t, p)
}
