package printers

import (
	"bytes"
	"strings"
	"testing"
)

func TestTableFitsTheTerminal(t *testing.T) {
	t.Parallel()
	rows := func() [][]string {
		return [][]string{{"NAME", "STATUS", "REASON"}, {"wéb", "Error", "a very long reason that goes on"}, {"b", "Running", ""}}
	}
	for _, c := range []struct {
		fit   int
		paint bool
		want  string
	}{
		{0, false, "NAME   STATUS    REASON\nwéb    Error     a very long reason that goes on\nb      Running\n"},
		{40, false, "NAME   STATUS    REASON\nwéb    Error     a very long reason tha…\nb      Running\n"},
		{10, false, "NAME   STATUS    REASON\nwéb    Error     a very long rea…\nb      Running\n"},
		{0, true, "NAME   STATUS    REASON\nwéb    \x1b[31mError\x1b[0m     a very long reason that goes on\nb      \x1b[32mRunning\x1b[0m\n"},
	} {
		var out bytes.Buffer
		tab := Table{out: &out, fit: c.fit}
		if c.paint {
			tab.paint = map[int]func(string) string{1: func(s string) string { return Colour(s, colourOf(s)) }}
		}
		if err := tab.Print(rows()...); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.want {
			t.Errorf("fit %d:\n%q, want\n%q", c.fit, out.String(), c.want)
		}
	}
}

func TestStatusColours(t *testing.T) {
	t.Parallel()
	for code, all := range map[string]string{
		green:  "Running Completed Succeeded",
		yellow: "Pending ContainerCreating Init:0/2 Terminating NotReady",
		red:    "CrashLoopBackOff Error Init:Error Init:CrashLoopBackOff ImagePullBackOff OOMKilled Unknown",
		faint:  "Deleted",
	} {
		for _, status := range strings.Fields(all) {
			if got := colourOf(status); got != code {
				t.Errorf("%s: %s, want %s", status, got, code)
			}
		}
	}
}
