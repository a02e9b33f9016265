package cli

import (
	"fmt"
	"strings"
	"unicode"
)

// Plain is text of a pod's, shown so that it does nothing to a terminal: control characters and what turns
// the direction of writing are spelled out. Line ends and tabs stay.
func Plain(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd") // a lone byte may act, too
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
