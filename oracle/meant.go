package main

import "regexp"

// meaning is a difference that is on purpose.
type meaning struct {
	// by is who says it.
	by             string
	field, message *regexp.Regexp
	what, why      string
}

// line makes a line of the table of regular expressions for the whole of the field's path, and for a
// part of the message. In the path [] stands for any index or key.
func line(by, field, message, what, why string) meaning {
	field = regexp.MustCompile(`\[\]`).ReplaceAllString(field, `\[[^\]]*\]`)
	return meaning{by, regexp.MustCompile(`^(?:` + field + `)$`), regexp.MustCompile(message), what, why}
}

// meant are the differences that are on purpose: all of them, each with its reason.
var meant = []meaning{}
