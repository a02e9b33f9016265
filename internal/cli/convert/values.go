package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// scalar returns a value of a compose file as text; "" for what is none.
func scalar(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return fmt.Sprint(v)
	}
	return ""
}

// single reports that v is no list and no object.
func single(v any) bool {
	_, isList := v.([]any)
	_, isObject := v.(map[string]any)
	return !isList && !isObject
}

// unreadable says why the value of a field of a service cannot be read, if the field has one value; "" if it can.
func unreadable(field string, v any) string {
	switch field {
	case "privileged", "read_only", "stdin_open", "tty":
		if text := scalar(v); v != nil && text != "true" && text != "false" {
			return "must be true or false"
		}
	case "image", "hostname", "working_dir", "user", "network_mode", "pid", "ipc", "pull_policy", "stop_signal":
		if !single(v) {
			return "must be a text"
		}
	}
	return ""
}

// truth returns a value as a truth; what is none is false.
func truth(v any) *bool { return new(scalar(v) == "true") }

// listOf returns a list, or a list of one value; none for nil.
func listOf(v any) []any {
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		return v
	case map[string]any: // of an older form of a list: name: value
		var out []any
		for _, name := range sorted(v) {
			out = append(out, name+":"+scalar(v[name]))
		}
		return out
	}
	return []any{v}
}

// list returns the texts of a list.
func list(v any) (out []string) {
	for _, one := range listOf(v) {
		out = append(out, scalar(one))
	}
	return out
}

// pair is a name with a value, if one is given.
type pair struct {
	name, value string
	given       bool
}

// pairs returns what is a map or a list of NAME=VALUE.
func pairs(v any) (out []pair) {
	if tree, is := v.(map[string]any); is {
		for _, name := range sorted(tree) {
			out = append(out, pair{name, scalar(tree[name]), tree[name] != nil})
		}
		return out
	}
	for _, one := range list(v) {
		name, value, given := strings.Cut(one, "=")
		out = append(out, pair{name, value, given})
	}
	return out
}

// unquoted removes the quotation marks around a value of an env file.
func unquoted(value string) string {
	if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
		return value[1 : n-1]
	}
	return value
}

// split splits a command line at spaces as a shell does, with quotation marks and backslashes.
func split(line string) (words []string, err error) {
	var word strings.Builder
	var quote rune
	begun, escaping := false, false
	for _, r := range line {
		switch {
		case escaping:
			word.WriteRune(r)
			escaping = false
		case r == '\\' && quote != '\'':
			escaping, begun = true, true
		case r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, begun = r, true
		case quote == 0 && (r == ' ' || r == '\t' || r == '\n'):
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if quote != 0 || escaping {
		return nil, errors.New("has a quotation mark that does not end")
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}
