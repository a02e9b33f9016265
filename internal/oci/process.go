package oci

import (
	"errors"
	"path"
	"slices"
	"strings"

	"podrun.io/podrun/internal/oci/env"
	"podrun.io/podrun/internal/pod"
)

// defaultPath is what a process gets when its image names none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// defaultTerm is the kind of a terminal that nothing else tells of, as the CRI has it.
const defaultTerm = "xterm"

// WithTerm is an environment with a TERM for a process that is given a terminal.
func WithTerm(environment []string) []string {
	if slices.ContainsFunc(environment, func(v string) bool { return strings.HasPrefix(v, "TERM=") }) {
		return environment
	}
	return append(slices.Clip(environment), "TERM="+defaultTerm)
}

// commandLine is the container's command and args over the image's: a command of its own leaves the
// image's CMD out.
func commandLine(in Input) ([]string, error) {
	entrypoint := expandAll(in.Container.Command, in.Env)
	args := expandAll(in.Container.Args, in.Env)
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
func environment(in Input) []string {
	all := list{}
	all.set("PATH", defaultPath)
	if in.Container.TTY {
		all.set("TERM", defaultTerm)
	}
	all.set("HOSTNAME", in.Hostname)
	for _, kv := range in.Image.Env {
		name, value, _ := strings.Cut(kv, "=")
		all.set(name, value)
	}
	for _, v := range in.Env {
		all.set(v.Name, v.Value)
	}
	return all.text
}

func workingDir(in Input) string {
	dir := in.Container.WorkingDir
	if dir == "" {
		dir = in.Image.WorkingDir
	}
	return path.Join("/", dir)
}

// list is variables in the order in which they were first set.
type list struct {
	text []string // NAME=value
	at   map[string]int
}

// set takes as long however many there are: an image has as many as it likes.
func (l *list) set(name, value string) {
	i, there := l.at[name]
	if !there {
		if l.at == nil {
			l.at = map[string]int{}
		}
		i = len(l.text)
		l.at[name], l.text = i, append(l.text, "")
	}
	l.text[i] = name + "=" + value
}

func expandAll(in []string, vars []pod.Variable) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i], _ = env.Expand(s, vars)
	}
	return out
}
