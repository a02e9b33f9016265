package convert

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// interpolate replaces the variables in all texts of a compose file. Where a variable is required and
// absent, the conversion fails.
func (c *converter) interpolate(v any, path string) any {
	switch v := v.(type) {
	case string:
		text, err := c.expand(v)
		if err != nil {
			c.fail("compose", fmt.Errorf("%s: %w", path, err))
		}
		return text
	case []any:
		for i := range v {
			v[i] = c.interpolate(v[i], fmt.Sprintf("%s[%d]", path, i))
		}
	case map[string]any:
		for _, name := range sorted(v) {
			v[name] = c.interpolate(v[name], strings.TrimPrefix(path+"."+name, "."))
		}
	}
	return v
}

// lookup returns a variable of the environment, or of the file .env beside the compose file.
func (c *converter) lookup(name string) (value string, is bool) {
	if value, is = c.Env(name); is {
		return value, true
	}
	data, err := c.ReadFile(filepath.Join(c.Dir, ".env"))
	if err != nil {
		return "", false
	}
	for _, line := range strings.Split(string(data), "\n") {
		key, text, given := strings.Cut(strings.TrimSpace(line), "=")
		if given && strings.TrimSpace(key) == name {
			value, is = unquoted(strings.TrimSpace(text)), true
		}
	}
	return value, is
}

// expand replaces $NAME, ${NAME} and the forms with a default, a replacement or an error; $$ is a $.
func (c *converter) expand(text string) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		var expression, after string
		switch {
		case strings.HasPrefix(rest, "$"):
			out.WriteByte('$')
			text = rest[1:]
			continue
		case strings.HasPrefix(rest, "{"):
			end := closing(rest)
			if end < 0 {
				return "", errors.New("${ has no }")
			}
			expression, after = rest[1:end], rest[end+1:]
		default:
			expression = rest[:nameLength(rest)]
			after = rest[len(expression):]
		}
		if expression == "" {
			return "", errors.New("$ has no name behind it; write $$ for a $")
		}
		value, err := c.variable(expression)
		if err != nil {
			return "", err
		}
		out.WriteString(value)
		text = after
	}
}

// closing returns where the brace ends with which a text begins; -1 if it does not.
func closing(text string) int {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// nameLength returns how long the name is with which a text begins.
func nameLength(text string) int {
	for i := range len(text) {
		c := text[i] | 0x20
		if (c < 'a' || c > 'z') && text[i] != '_' && (i == 0 || text[i] < '0' || text[i] > '9') {
			return i
		}
	}
	return len(text)
}

// variable returns the value of NAME, NAME:-DEFAULT, NAME-DEFAULT, NAME:+VALUE, NAME+VALUE, NAME:?ERROR or NAME?ERROR.
func (c *converter) variable(expression string) (string, error) {
	n := nameLength(expression)
	name, rest := expression[:n], expression[n:]
	if name == "" {
		return "", fmt.Errorf("${%s} has no name", expression)
	}
	value, is := c.lookup(name)
	rest, notEmpty := strings.CutPrefix(rest, ":")
	has := is && (!notEmpty || value != "")
	if rest == "" {
		if !is {
			c.drop("compose", "$"+name, "has no value here: it is empty")
		}
		return value, nil
	}
	other := rest[1:]
	switch rest[0] {
	case '-':
		if !has {
			return c.expand(other)
		}
	case '+':
		if value = ""; has {
			return c.expand(other)
		}
	case '?':
		if !has {
			return "", fmt.Errorf("the variable %s is required: %s", name, other)
		}
	default:
		return "", fmt.Errorf("${%s} is not known", expression)
	}
	return value, nil
}
