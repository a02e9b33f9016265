// Package errtext has what depends on the text of errors: Same compares them, so that the same failure is not
// reported again and again; the others word errors of Go's packages for users, with the fix and without names
// of Go's types.
package errtext

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Same reports whether two errors have the same text, or are both nil.
func Same(a, b error) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Error() == b.Error()
}

// JSON words an error of encoding/json about text. It does not quote the text, which may be secret.
func JSON(text []byte, err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	line := func(offset int64) int {
		return 1 + bytes.Count(text[:min(max(offset-1, 0), int64(len(text)))], []byte("\n"))
	}
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return errors.New("is empty")
	case errors.As(err, &syntax) && syntax.Offset >= int64(len(text)):
		return fmt.Errorf("line %d: is not JSON: it ends too early", line(syntax.Offset))
	case errors.As(err, &syntax):
		return fmt.Errorf("line %d: is not JSON", line(syntax.Offset))
	case errors.As(err, &kind) && kind.Field == "":
		return errors.New("must be an object")
	case errors.As(err, &kind):
		return fmt.Errorf("line %d: %s: must be %s, not %s", line(kind.Offset), kind.Field, jsonType(kind.Type.Kind().String()),
			jsonType(strings.Fields(kind.Value)[0]))
	}
	return err
}

// jsonType returns JSON's word for a kind of Go's or a value of encoding/json, with its article.
func jsonType(kind string) string {
	switch kind {
	case "struct", "map", "object":
		return "an object"
	case "slice", "array":
		return "a list"
	case "string":
		return "a string"
	case "bool":
		return "true or false"
	}
	return "a number"
}

// WithoutPattern returns a rule of Kubernetes for a name without the regular expression that ends it; its
// example stays.
func WithoutPattern(rule string) string {
	start := strings.Index(rule, ", regex used for validation is '")
	if end := strings.LastIndex(rule, "')"); start >= 0 && end > start {
		return rule[:start] + rule[end+len("'"):]
	}
	return rule
}

// Dial returns the cause of an error of a connection, without gRPC's words around it.
func Dial(err error) string {
	text := err.Error()
	if _, cause, is := strings.Cut(text, `desc = "transport: Error while dialing: `); is {
		text = strings.TrimSuffix(cause, `"`)
	}
	if i := strings.LastIndex(text, ": connect: "); strings.HasPrefix(text, "dial ") && i >= 0 {
		text = text[i+len(": connect: "):]
	}
	return text
}
