package summary

import "testing"

func TestPlain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a\x1b[2Jb\rc\u202ed\x9be\nf\tg\x00": `a\x1b[2Jb\x0dc\u202ed` + "\ufffd" + "e\nf\tg" + `\x00`,
		"\x9b":                               "\ufffd", "\u009b€ü": `\x9b€ü`,
	} {
		if got := Plain(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
	if got := PlainLine("a\x1b[2J\nb\tc\r"); got != `a\x1b[2J\x0ab\x09c\x0d` {
		t.Errorf("a line: %q", got)
	}
}
