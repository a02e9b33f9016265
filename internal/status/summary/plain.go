package summary

import (
	"fmt"
	"strings"
	"unicode"
)

// PlainLine makes text that is a single line by nature, such as a name, safe for a terminal: it is
// Plain, and also replaces line feeds and tabs, with which a name could pretend to be several lines.
func PlainLine(s string) string {
	return strings.NewReplacer("\n", `\x0a`, "\t", `\x09`).Replace(Plain(s))
}

// Plain makes text that comes from a pod safe for a terminal. It replaces control characters and
// format characters, such as those that change the writing direction, by escape sequences in plain
// text. Line feeds and tabs stay.
func Plain(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd") // a single invalid byte may be a control character, too
	acts := func(r rune) bool {
		return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r))
	}
	if strings.IndexFunc(s, acts) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !acts(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
