package revisions

import (
	"fmt"
	"reflect"
	"testing"
	"time"
)

// step is what happens, and what is decided then: the revision that runs, and what is recorded.
type step struct {
	wanted string
	health State
	tried  time.Duration
	want   string
}

// describe returns what a verdict says.
func describe(v Verdict) string {
	h := v.History
	text := "runs " + v.Use.ID
	if h.Good != nil {
		text += ", good " + h.Good.ID
	}
	if h.Previous != nil {
		text += ", before " + h.Previous.ID
	}
	if h.Tried != "" {
		text += ", tries " + h.Tried
	}
	if h.Overdue {
		text += " overdue"
	}
	if h.RolledBack != "" {
		text += ", not " + h.RolledBack
	}
	if v.Wait > 0 {
		text += ", waits " + v.Wait.String()
	}
	return text
}

// TestPins: a revision that is rolled back to runs the images that it ran when it was healthy, until another one is
// healthy.
func TestPins(t *testing.T) {
	t.Parallel()
	var h *History
	judge := func(id string, s State, undo bool, want string) {
		t.Helper()
		v := Judge(Input{
			History: h, Wanted: &Revision{ID: id}, Health: Health{State: s}, Images: map[string]string{"image": "of " + id},
			Tried: time.Hour, Deadline: time.Minute, Undo: undo,
		})
		h = v.History
		if got := h.Pins(v.Use.ID)["image"]; got != want {
			t.Errorf("%s: pinned to %q, want %q", id, got, want)
		}
	}
	judge("a", Starting, false, "")
	judge("a", Well, false, "")
	judge("a", Starting, false, "")
	judge("b", Starting, false, "")
	judge("b", Broken, false, "of a")
	judge("b", Starting, false, "of a")
	judge("a", Starting, false, "of a") // edited back
	judge("c", Starting, false, "")
	judge("c", Well, false, "")
	judge("c", Starting, true, "of a") // undone
	judge("d", Starting, false, "")
	judge("a", Starting, false, "of a")
	if pins := (*History)(nil).Pins("a"); pins != nil {
		t.Errorf("without a history: %v", pins)
	}
}

// TestJudge: a revision that is not healthy in time gives way to the last one that was, until the manifest has another.
func TestJudge(t *testing.T) {
	t.Parallel()
	const late = 2 * time.Minute
	for name, steps := range map[string][]step{
		"healthy": {
			{"a", Starting, 0, "runs a, tries a, waits 2m0s"},
			{"a", Starting, time.Minute, "runs a, tries a, waits 1m0s"},
			{"a", Well, late, "runs a, good a"},
			{"a", Starting, 0, "runs a, good a"},
			{"a", Broken, late, "runs a, good a"},
		},
		"none to go back to": {
			{"a", Starting, 0, "runs a, tries a, waits 2m0s"},
			{"a", Starting, late, "runs a, tries a overdue"},
			{"a", Starting, late, "runs a, tries a overdue"},
			{"a", Well, late, "runs a, good a"},
		},
		"rolled back, then edited": {
			{"a", Well, 0, "runs a, tries a, waits 2m0s"}, // health of a revision that did not run yet does not count
			{"a", Well, 0, "runs a, good a"},
			{"b", Starting, 0, "runs b, good a, tries b, waits 2m0s"},
			{"b", Starting, late - 1, "runs b, good a, tries b, waits 1ns"},
			{"b", Starting, late, "runs a, good a, not b"},
			{"b", Well, 0, "runs a, good a, not b"}, // a is well
			{"c", Starting, 0, "runs c, good a, tries c, waits 2m0s"},
			{"c", Well, 0, "runs c, good c, before a"},
			{"b", Starting, 0, "runs b, good c, before a, tries b, waits 2m0s"}, // another try
			{"b", Broken, 0, "runs c, good c, before a, not b"},
		},
		"edited back": {
			{"a", Starting, 0, "runs a, tries a, waits 2m0s"},
			{"a", Well, 0, "runs a, good a"},
			{"b", Starting, 0, "runs b, good a, tries b, waits 2m0s"},
			{"a", Starting, 0, "runs a, good a"},
			{"b", Broken, 0, "runs b, good a, tries b, waits 2m0s"},
			{"b", Broken, 0, "runs a, good a, not b"},
			{"a", Well, 0, "runs a, good a"},
		},
		"edited while it is tried": {
			{"a", Starting, 0, "runs a, tries a, waits 2m0s"},
			{"b", Starting, late, "runs b, tries b, waits 2m0s"},
			{"b", Well, 0, "runs b, good b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var h *History
			for i, s := range steps {
				before := fmt.Sprintf("%+v", h)
				if h != nil {
					before = fmt.Sprintf("%+v", *h)
				}
				v := Judge(Input{
					History: h, Wanted: &Revision{ID: s.wanted}, Health: Health{State: s.health, Reason: "why"},
					Tried: s.tried, Deadline: late, Now: time.Unix(int64(i), 0),
				})
				if got := describe(v); got != s.want {
					t.Errorf("step %d: %s\nwant    %s", i, got, s.want)
				}
				if h != nil && fmt.Sprintf("%+v", *h) != before {
					t.Errorf("step %d: the history was changed", i)
				}
				if again := Judge(Input{
					History: v.History, Wanted: &Revision{ID: s.wanted}, Deadline: late, Now: time.Unix(int64(i), 0),
				}); again.Use.ID != v.Use.ID {
					t.Errorf("step %d: runs %s, and then %s", i, v.Use.ID, again.Use.ID)
				}
				if use, rolledBack := Chosen(v.History, s.wanted); rolledBack != (v.Use.ID != s.wanted) ||
					rolledBack && use.ID != v.Use.ID {
					t.Errorf("step %d: chosen: %v", i, use)
				}
				h = v.History
			}
		})
	}
}

// TestPast: a history has the outcomes, with their times and reasons, and not more than MaxPast.
func TestPast(t *testing.T) {
	t.Parallel()
	var h *History
	at := 0
	judge := func(wanted string, health Health) {
		at++
		v := Judge(Input{
			History: h, Wanted: &Revision{ID: wanted}, Health: health, Deadline: time.Minute, Now: time.Unix(int64(at), 0),
		})
		if e, is := Event(h, v.History); is {
			t.Logf("%d: %s: %s", at, e.Reason, e.Message)
		}
		h = v.History
	}
	judge("a", Health{})
	judge("a", Health{State: Well})
	judge("b", Health{})
	judge("b", Health{State: Broken, Reason: "it has failed"})
	judge("c", Health{})
	judge("d", Health{})
	want := []Outcome{
		{"a", Healthy, "", time.Unix(1, 0), time.Unix(2, 0)},
		{"b", RolledBack, "not healthy in time: it has failed", time.Unix(3, 0), time.Unix(4, 0)},
		{"c", Superseded, "", time.Unix(5, 0), time.Unix(6, 0)},
	}
	if !reflect.DeepEqual(h.Past, want) {
		t.Errorf("%+v", h.Past)
	}
	if h.Reason() != "" {
		t.Errorf("reason %q of what is not rolled back", h.Reason())
	}
	judge("d", Health{State: Broken, Reason: "x"})
	if h.Reason() != "not healthy in time: x" {
		t.Errorf("reason %q", h.Reason())
	}
	for i := range 2 * MaxPast {
		judge(fmt.Sprint(i), Health{})
	}
	if len(h.Past) != MaxPast {
		t.Errorf("%d outcomes", len(h.Past))
	}
}

// TestUndo: podrun undo goes back from the revision that runs, once, if there is one to go back to.
func TestUndo(t *testing.T) {
	t.Parallel()
	a, b, c := &Revision{ID: "a"}, &Revision{ID: "b"}, &Revision{ID: "c"}
	for name, one := range map[string]struct {
		history History
		want    string
		running string
		can     bool
	}{
		"healthy":         {History{Good: b, Previous: a}, "runs a, good a, not b", "b", true},
		"the first one":   {History{Good: b}, "runs b, good b", "b", false},
		"tried":           {History{Good: c, Previous: a, Tried: "b"}, "runs c, good c, before a, not b", "b", true},
		"tried first":     {History{Tried: "b", Overdue: true}, "runs b, tries b overdue", "b", false},
		"rolled back":     {History{Good: c, Previous: a, RolledBack: "b"}, "runs c, good c, before a, not b", "c", false},
		"another by then": {History{Good: a}, "runs b, good a, tries b, waits 1m0s", "a", false},
	} {
		v := Judge(Input{History: &one.history, Wanted: b, Undo: true, Deadline: time.Minute})
		if got := describe(v); got != one.want {
			t.Errorf("%s: %s, want %s", name, got, one.want)
		}
		if running, can := one.history.CanUndo(); running != one.running || can != one.can {
			t.Errorf("%s: runs %s, can be undone: %v", name, running, can)
		}
	}
}
