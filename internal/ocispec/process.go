package ocispec

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// defaultPath is what a process gets when its image names none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// commandLine is the container's command and args over the image's: a command of its own leaves the
// image's CMD out.
func commandLine(in Input) ([]string, error) {
	vars, err := variables(in.Container.Env)
	if err != nil {
		return nil, err
	}
	entrypoint := expandAll(in.Container.Command, vars)
	args := expandAll(in.Container.Args, vars)
	if len(entrypoint) == 0 {
		if !slices.Equal(in.Image.Entrypoint, []string{""}) { // [""] is how builders reset it
			entrypoint = in.Image.Entrypoint
		}
		if len(args) == 0 {
			args = in.Image.Cmd
		}
	}
	line := slices.Concat(entrypoint, args)
	if len(line) == 0 || line[0] == "" {
		return nil, errors.New("no command: neither the container nor its image names one")
	}
	return line, nil
}

// environment is the image's and then the container's own; a name given again takes the later value.
func environment(in Input) ([]string, error) {
	own, err := variables(in.Container.Env)
	if err != nil {
		return nil, err
	}
	env := list{}
	env.set("PATH", defaultPath)
	if in.Container.TTY {
		env.set("TERM", "xterm")
	}
	env.set("HOSTNAME", in.Hostname)
	for _, kv := range in.Image.Env {
		name, value, _ := strings.Cut(kv, "=")
		env.set(name, value)
	}
	for _, e := range own {
		env.set(e.name, e.value)
	}
	out := make([]string, len(env))
	for i, e := range env {
		out[i] = e.name + "=" + e.value
	}
	return out, nil
}

// variables are the container's own, each expanded with those before it. The image's are not seen, as
// in Kubernetes.
func variables(env []v1.EnvVar) (list, error) {
	var vars list
	for _, e := range env {
		if e.ValueFrom != nil {
			return nil, fmt.Errorf("environment variable %s: valueFrom is not supported", e.Name)
		}
		vars.set(e.Name, expand(e.Value, vars))
	}
	return vars, nil
}

func workingDir(in Input) string {
	dir := in.Container.WorkingDir
	if dir == "" {
		dir = in.Image.WorkingDir
	}
	return path.Join("/", dir)
}

// list is variables in the order in which they were first set.
type list []variable

type variable struct{ name, value string }

func (l *list) set(name, value string) {
	for i := range *l {
		if (*l)[i].name == name {
			(*l)[i].value = value
			return
		}
	}
	*l = append(*l, variable{name, value})
}

func (l list) get(name string) (string, bool) {
	for _, v := range l {
		if v.name == name {
			return v.value, true
		}
	}
	return "", false
}

func expandAll(in []string, vars list) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = expand(s, vars)
	}
	return out
}

// expand replaces $(NAME) by the variable's value and $$ by $. An unknown name stays as it is written.
func expand(s string, vars list) string {
	var out strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i == len(s)-1 {
			out.WriteString(s)
			return out.String()
		}
		out.WriteString(s[:i])
		s = s[i:]
		end := strings.IndexByte(s, ')')
		switch {
		case s[1] == '$':
			out.WriteByte('$')
			s = s[2:]
		case s[1] == '(' && end > 0:
			value, known := vars.get(s[2:end])
			if !known {
				value = s[:end+1]
			}
			out.WriteString(value)
			s = s[end+1:]
		default:
			out.WriteByte('$')
			s = s[1:]
		}
	}
}
