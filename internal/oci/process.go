package oci

import (
	"errors"
	"path"
	"slices"
	"strings"

	"podrun.io/podrun/internal/oci/env"
)

// defaultPath is the PATH of a process whose image sets none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// defaultTerm is the TERM of a terminal for which nothing sets one, as in the CRI.
const defaultTerm = "xterm"

// WithTerm returns the environment of a process that has a terminal, with TERM added if it is not
// set.
func WithTerm(environment []string) []string {
	if slices.ContainsFunc(environment, func(v string) bool { return strings.HasPrefix(v, "TERM=") }) {
		return environment
	}
	return append(slices.Clip(environment), "TERM="+defaultTerm)
}

// commandLine returns the container's command and args, or the image's where the container sets
// none. If the container sets a command, the image's CMD is ignored.
func commandLine(in Input) ([]string, error) {
	entrypoint, err := env.ExpandAll(in.Container.Command, in.Env)
	if err != nil {
		return nil, err
	}
	args, err := env.ExpandAll(in.Container.Args, in.Env)
	if err != nil {
		return nil, err
	}
	if len(entrypoint) == 0 {
		if !slices.Equal(in.Image.Entrypoint, []string{""}) { // builders reset the entrypoint to [""]
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

// environment returns the image's variables followed by the container's own; a later value of a
// name replaces an earlier one.
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

// list holds variables in the order in which they were first set.
type list struct {
	text []string // NAME=value
	at   map[string]int
}

// set takes constant time, because an image may have any number of variables.
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
