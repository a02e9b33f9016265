package convert

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"podrun.io/podrun/internal/sys/excerpt"
)

// interpolate replaces the variables in all texts of a compose file, in place. It ends at the first error, which names
// the place: a list of all, each with its path, could be longer than the file by far.
func (c *converter) interpolate(file map[string]any) error {
	var way []string // to the value, put together only for an error
	var within func(v any) (any, error)
	step := func(to string, v any) (any, error) {
		way = append(way, to)
		v, err := within(v)
		if err == nil {
			way = way[:len(way)-1]
		}
		return v, err
	}
	within = func(v any) (_ any, err error) {
		switch v := v.(type) {
		case string:
			return c.text(v)
		case []any:
			for i := range v {
				if v[i], err = step(fmt.Sprintf("[%d]", i), v[i]); err != nil {
					return nil, err
				}
			}
		case map[string]any:
			for _, name := range sorted(v) {
				if v[name], err = step("."+name, v[name]); err != nil {
					return nil, err
				}
			}
		}
		return v, nil
	}
	if _, err := within(file); err != nil {
		return fmt.Errorf("%s: %w", excerpt.Of(strings.TrimPrefix(strings.Join(way, ""), "."), maxName), err)
	}
	return nil
}

// text replaces the variables in one text, and counts what it becomes.
func (c *converter) text(v string) (string, error) {
	text, err := c.expand(v, 0)
	if err != nil {
		return "", err
	}
	if c.expanded += len(text); c.expanded > MaxText {
		return "", fmt.Errorf("has more than %d MiB with its variables and those before", MaxText>>20)
	}
	return text, nil
}

// readNamed reads a file that the compose file names. All of them together have a maximum size.
func (c *converter) readNamed(path string) ([]byte, error) {
	if c.read <= MaxText {
		data, err := c.ReadFile(path)
		if err != nil {
			return nil, err
		}
		c.read += len(data)
		if c.read <= MaxText {
			return data, nil
		}
	}
	return nil, fmt.Errorf("%s: with the files before it, has more than %d MiB", path, MaxText>>20)
}

// lookup returns a variable of the environment, or of the file .env beside the compose file.
func (c *converter) lookup(name string) (value string, is bool) {
	if value, is = c.Env(name); is {
		return value, true
	}
	if c.dotEnv == nil {
		c.dotEnv = map[string]string{}
		data, err := c.readNamed(filepath.Join(c.Dir, ".env"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.fail("compose", err)
		}
		for line := range strings.SplitSeq(string(data), "\n") {
			if key, text, given := strings.Cut(strings.TrimSpace(line), "="); given {
				c.dotEnv[strings.TrimSpace(key)] = unquoted(strings.TrimSpace(text))
			}
		}
	}
	value, is = c.dotEnv[name]
	return value, is
}

// expand replaces $NAME, ${NAME} and the forms with a default, a replacement or an error; $$ is a $. The text is in
// the defaults of as many variables as depth says.
func (c *converter) expand(text string, depth int) (string, error) {
	if depth > maxNesting {
		return "", fmt.Errorf("has variables more than %d deep in each other", maxNesting)
	}
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
		value, err := c.variable(expression, depth)
		if err != nil {
			return "", err
		}
		if out.WriteString(value); out.Len() > MaxText {
			return "", fmt.Errorf("has more than %d MiB with its variables", MaxText>>20)
		}
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
func (c *converter) variable(expression string, depth int) (string, error) {
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
			return c.expand(other, depth+1)
		}
	case '+':
		if value = ""; has {
			return c.expand(other, depth+1)
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
