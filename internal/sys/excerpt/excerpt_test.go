package excerpt

import (
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"", 3, ""}, {"abcdef", 6, "abcdef"}, {"abcdefg", 6, "abc…"}, {"\xffb", 2, "\xffb"},
		{"üüüü", 7, "üü…"}, {"üüüü", 6, "ü…"}, {"\xff\xff\xffabc", 5, "…"}, {strings.Repeat("a", 1<<20), 4, "a…"},
	} {
		if got := Of(c.text, c.most); got != c.want {
			t.Errorf("%.10q cut to %d: %.20q", c.text, c.most, got)
		}
	}
}
