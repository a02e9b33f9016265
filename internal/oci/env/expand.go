package env

import (
	"fmt"
	"strings"

	"podrun.io/podrun/internal/pod"
)

// The kernel starts no process with more: in one argument or variable, and in all together. A few
// variables that refer to each other would otherwise have values of any length.
const (
	maxText  = 128 << 10
	maxTexts = 6 << 20
)

// list holds variables in the order in which they were first set.
type list struct {
	all []pod.Variable
	at  map[string]int
	// expanded is the length of what expand has returned so far.
	expanded int
}

func (l *list) set(v pod.Variable) {
	i, there := l.at[v.Name]
	if there {
		l.all[i] = v
		return
	}
	if l.at == nil {
		l.at = map[string]int{}
	}
	l.at[v.Name] = len(l.all)
	l.all = append(l.all, v)
}

// get returns the variable's value.
func (l *list) get(name string) (pod.Variable, bool) {
	i, there := l.at[name]
	if !there {
		return pod.Variable{}, false
	}
	return l.all[i], true
}

// listOf returns a list of the variables; the first one of a name counts.
func listOf(vars []pod.Variable) *list {
	l := &list{at: make(map[string]int, len(vars))}
	for _, v := range vars {
		if _, there := l.at[v.Name]; !there {
			l.set(v)
		}
	}
	return l
}

// Expand replaces $(NAME) by the variable's value and $$ by $. References to unknown variables are
// left as they are. secret reports whether the value of a variable with Secret set was inserted. A
// result that is longer than the kernel accepts is an error.
func Expand(s string, vars []pod.Variable) (out string, secret bool, err error) {
	if !strings.Contains(s, "$") {
		return s, false, nil
	}
	return listOf(vars).expand(s)
}

// ExpandAll expands the arguments of a command.
func ExpandAll(in []string, vars []pod.Variable) ([]string, error) {
	known := listOf(vars)
	out := make([]string, len(in))
	for i, s := range in {
		var err error
		if out[i], _, err = known.expand(s); err != nil {
			return nil, fmt.Errorf("argument %d of the command %w", i, err)
		}
	}
	return out, nil
}

// expand is Expand with the variables of the list.
func (l *list) expand(s string) (out string, secret bool, err error) {
	out, err = expand(s, func(name string) (string, bool) {
		v, known := l.get(name)
		secret = secret || v.Secret
		return v.Value, known
	})
	if l.expanded += len(out); err == nil && l.expanded > maxTexts {
		err = fmt.Errorf("makes all of them longer than %d bytes, which is more than a process can have", maxTexts)
	}
	return out, secret, err
}

// Unknown returns the first reference in s to an unknown variable; "" if there is none.
func Unknown(s string, vars []pod.Variable) string {
	known, unknown := listOf(vars), ""
	// The error is of no interest: what is unknown is never replaced by something longer.
	_, _ = expand(s, func(name string) (string, bool) {
		_, is := known.get(name)
		if !is && unknown == "" {
			unknown = "$(" + name + ")"
		}
		return "", is
	})
	return unknown
}

// expand takes time proportional to the lengths of s and of the result.
func expand(s string, value func(name string) (string, bool)) (string, error) {
	if !strings.Contains(s, "$") {
		return s, nil // not limited: the kernel may refuse it
	}
	var b strings.Builder
	unclosed := len(s) - 1 - strings.LastIndexByte(s, ')') // the length of what has no bracket to end a reference
	for s != "" {
		text, rest := next(s, len(s) > unclosed)
		if name, is := reference(text); is {
			if v, known := value(name); known {
				text = v
			}
		} else if text == "$$" {
			text = "$"
		}
		if b.Len()+len(text) > maxText {
			return "", fmt.Errorf("has more than %d bytes, which is more than a process can have", maxText)
		}
		b.WriteString(text)
		s = rest
	}
	return b.String(), nil
}

// next splits off what is not expanded, or one reference, or $$. closed says that s has a ).
func next(s string, closed bool) (text, rest string) {
	end := 1
	switch {
	case s[0] != '$':
		if end = strings.IndexByte(s, '$'); end < 0 {
			end = len(s)
		}
	case strings.HasPrefix(s, "$$"):
		end = len("$$")
	case closed && strings.HasPrefix(s, "$("):
		end = strings.IndexByte(s, ')') + 1
	}
	return s[:end], s[end:]
}

// reference returns the name in $(NAME).
func reference(text string) (name string, is bool) {
	name, is = strings.CutPrefix(text, "$(")
	return strings.TrimSuffix(name, ")"), is
}
