package relist

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"podrun.io/podrun/internal/pod"
)

// transitions are the events that Diff must return for a container, from its state before (row) to
// its state now (column): s started, d died, r removed. The last row and column stand for a
// container that does not exist.
var transitions = [5][5]string{
	//             unknown created running exited none
	pod.Unknown: {"", "", "s", "d", "dr"},
	pod.Created: {"", "", "s", "d", "r"},
	pod.Running: {"", "d", "", "d", "dr"}, // one that turns out never to have run
	pod.Exited:  {"", "", "s", "", "r"},
	4:           {"", "", "s", "d", ""},
}

// FuzzDiff compares Diff with the table above. The data are states: of each container before and
// now, then of the sandbox.
func FuzzDiff(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 4, 3, 2}, byte(1), byte(2))
	f.Add([]byte{4, 2}, byte(0), byte(1))
	f.Add([]byte{2, 4}, byte(1), byte(0))
	f.Fuzz(func(t *testing.T, states []byte, before, after byte) {
		old, now := pod.Observed{Key: key}, pod.Observed{Key: key}
		var want []string
		for i := 0; i+1 < len(states); i += 2 {
			was, is, id := states[i]%5, states[i+1]%5, fmt.Sprint("c", i)
			if was < 4 {
				old.Containers = append(old.Containers, c(id, pod.State(was)))
			}
			if is < 4 {
				now.Containers = append(now.Containers, c(id, pod.State(is)))
			}
			for _, letter := range transitions[was][is] {
				want = append(want, map[rune]string{'s': "started", 'd': "died", 'r': "removed"}[letter]+" "+id)
			}
		}
		old.Sandboxes, now.Sandboxes = boxes(before), boxes(after)
		if before%3 == 1 && after%3 != 1 {
			want = append(want, "sandbox-died s")
		}
		there := func(o pod.Observed) bool { return len(o.Containers)+len(o.Sandboxes) > 0 }
		if !there(old) && there(now) {
			want = append(want, "appeared")
		}
		if there(old) && !there(now) {
			want = append(want, "vanished")
		}
		var got []string
		for _, e := range Diff(old, now) {
			got = append(got, strings.TrimSpace(e.Kind.String()+" "+e.ID))
		}
		if i := slices.Index(got, "appeared"); i > 0 {
			t.Errorf("a pod appears after what happens in it: %v", got)
		}
		if i := slices.Index(got, "vanished"); i >= 0 && i != len(got)-1 {
			t.Errorf("something happens to a pod that has vanished: %v", got)
		}
		for i, event := range got {
			if id, ok := strings.CutPrefix(event, "removed "); ok && slices.Index(got, "died "+id) > i {
				t.Errorf("removed before it died: %v", got)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("from %+v to %+v: got %v, want %v", old, now, got, want)
		}
		if again := Diff(now, now); len(again) > 0 {
			t.Errorf("between two sights of the same: %v", again)
		}
	})
}

// boxes returns a sandbox that does not exist, is ready, or is not ready.
func boxes(state byte) []pod.Sandbox {
	if state%3 == 0 {
		return nil
	}
	return []pod.Sandbox{{ID: "s", Ready: state%3 == 1}}
}
