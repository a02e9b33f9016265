package cp

import (
	"errors"
	"fmt"
	"strings"

	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/pod"
)

// FileSpec names a file on this machine or in a container.
type FileSpec struct {
	// Namespace and Pod are as given; Namespace is "" if none is given, and Pod for a file of this machine.
	Namespace, Pod string
	Path           string
}

// Local reports that the file is one of this machine.
func (p FileSpec) Local() bool { return p.Pod == "" }

// ParseFileSpec reads an argument in the form of kubectl cp: PATH, POD:PATH or NAMESPACE/POD:PATH. POD may be pod/NAME,
// as in other commands: a namespace with the name of a resource type is given by a flag. What begins with / or . is a
// path on this machine, also with a colon.
func ParseFileSpec(text string) (FileSpec, error) {
	of, path, remote := strings.Cut(text, ":")
	if !remote || strings.HasPrefix(text, "/") || strings.HasPrefix(text, ".") {
		if text == "" {
			return FileSpec{}, errors.New("a path is empty")
		}
		return FileSpec{Path: text}, nil
	}
	p := FileSpec{Pod: query.BareName(of), Path: path}
	if namespace, name, both := strings.Cut(p.Pod, "/"); both {
		p.Namespace, p.Pod = namespace, query.BareName(name)
	}
	if query.WorkloadKind(p.Namespace) != "" { // the search for the pod says what to do
		p.Namespace, p.Pod = "", of
		return p, nil
	}
	switch {
	case p.Pod == "" || strings.Contains(p.Pod, "/"):
		return FileSpec{}, fmt.Errorf("%q must be PATH, POD:PATH or NAMESPACE/POD:PATH", text)
	case path == "":
		return FileSpec{}, fmt.Errorf("%q has no path after the colon", text)
	}
	return p, nil
}

// Pair reads the two arguments of the command. Exactly one of them is in a container.
func Pair(from, to string) (source, target FileSpec, err error) {
	if source, err = ParseFileSpec(from); err != nil {
		return source, target, err
	}
	if target, err = ParseFileSpec(to); err != nil {
		return source, target, err
	}
	switch {
	case source.Local() && target.Local():
		err = errors.New("neither path is in a container: give one as POD:PATH")
	case !source.Local() && !target.Local():
		err = errors.New("both paths are in containers: copy to this machine first, and then into the other container")
	}
	return source, target, err
}

// Instance is a running container with the names that errors give it.
type Instance struct {
	Key       pod.Key
	Container string
	ID        string
}

// shown is a path of the container for messages.
func (i Instance) shown(path string) string { return fmt.Sprintf("%s:%s", i.Key.Name, path) }

// Completions makes the beginnings of POD:PATH of the names of pods, each with a tab and a description.
func Completions(pods []string) (all []string) {
	for _, p := range pods {
		all = append(all, strings.Replace(p, "\t", ":\t", 1))
	}
	return all
}
