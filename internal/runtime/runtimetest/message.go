package runtimetest

import (
	"fmt"
	"strings"
	"testing"

	"podrun.io/podrun/internal/runtime"
)

// longest is longer than the longest termination message, and has multi-byte characters.
var longest = strings.Repeat("é", 2500) + "the end"

func testMessage(t *testing.T, s subject) {
	p := s.newPod("message-node", "uid-message", "main")
	start := s.ready(t, p)
	c := s.start(t, start)
	s.Exit(t, c.ID, 1)
	s.ended(t, start)
	must(t, s.ReapContainer(t.Context(), c.ID, "what its log says"))
	must(t, s.ReapContainer(t.Context(), c.ID, "something else"))
	if c = s.instance(t, start); c.Message != "what its log says" || !c.Reaped {
		t.Errorf("reaped: %+v", c)
	}
	s.remove(t, p)
}

func testOwnMessage(t *testing.T, s subject) {
	if !s.Runs {
		t.Skip("commands do not run in this runtime")
	}
	p := s.newPod("words-node", "uid-words", "main")
	start := s.ready(t, p)
	for attempt, words := range []string{"why", longest, "\xff\x00 no text"} {
		start.Attempt, start.Container.TerminationMessagePath = attempt, "/dev/termination-log"
		if attempt == 2 {
			start.Container.TerminationMessagePath = "/a/path/of/its/own"
		}
		c := s.start(t, start)
		code, err := s.Exec(t.Context(), c.ID,
			[]string{"sh", "-c", fmt.Sprintf("cat >>%s", start.Container.TerminationMessagePath)},
			runtime.ExecIO{Stdin: strings.NewReader(words)})
		if err != nil || code != 0 {
			t.Fatal(code, err)
		}
		if c.Message != "" {
			t.Errorf("running: %q", c.Message)
		}
		s.Exit(t, c.ID, 1)
		want := words[max(0, len(words)-4096):]
		want = strings.ToValidUTF8(want, "�")
		if c = s.ended(t, start); c.Message != want {
			t.Errorf("ended: %d bytes, %.60q", len(c.Message), c.Message)
		}
		must(t, s.ReapContainer(t.Context(), c.ID, "what its log says"))
		if c = s.instance(t, start); c.Message != want {
			t.Errorf("reaped: %d bytes, %.60q", len(c.Message), c.Message)
		}
	}
	s.remove(t, p)
}
