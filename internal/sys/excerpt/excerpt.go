// Package excerpt limits texts that others determine the length of, such as the answers of servers
// in containers, before they are logged or stored. Its only function is Of.
package excerpt

import "strings"

// mark is the end of a text that was cut.
const mark = "…"

// Of returns the text if it has at most most bytes; else its beginning and an ellipsis, which
// together have no more.
func Of(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(mark)], "") + mark
}
