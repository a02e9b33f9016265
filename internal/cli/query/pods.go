package query

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"podrun.io/podrun/internal/cli"
)

// Selection selects pods.
type Selection struct {
	Namespace     string
	AllNamespaces bool
	Labels        string // a label selector; "" selects all pods
}

// Select returns the pods of a selection or, if names are given, those of them with these names. It
// returns the pods that exist even if there is an error.
func (r *Reader) Select(f Selection, names []string) ([]*v1.Pod, error) {
	pods, err := r.Settled()
	if err != nil {
		return nil, err
	}
	if !f.AllNamespaces {
		pods = InNamespace(pods, f.Namespace)
	}
	if f.Labels != "" {
		selected, err := labels.Parse(f.Labels)
		if err != nil {
			return nil, fmt.Errorf("--selector %q: %w", f.Labels, err)
		}
		pods = slices.DeleteFunc(pods, func(p *v1.Pod) bool { return !selected.Matches(labels.Set(p.Labels)) })
	}
	if len(names) == 0 {
		return pods, nil
	}
	var selected []*v1.Pod
	var failures []error
	for _, name := range names {
		p, err := Find(pods, name)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		selected = append(selected, p)
	}
	return selected, errors.Join(failures...)
}

// Named returns a pod by its full name or its name in the manifest.
func (r *Reader) Named(namespace, name string) (*v1.Pod, error) {
	pods, err := r.Pods()
	if err != nil {
		return nil, err
	}
	return Find(InNamespace(pods, namespace), name)
}

// InNamespace returns the pods of a namespace.
func InNamespace(pods []*v1.Pod, namespace string) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p *v1.Pod) bool { return p.Namespace != namespace })
}

// NotFoundError is the error that a pod does not exist.
type NotFoundError struct{ name string }

func (e *NotFoundError) Error() string { return fmt.Sprintf("pods %q not found", e.name) }

// Find returns the pod with the full name name, or else the pod with that name in its manifest. It
// fails if several pods have that name in their manifests.
func Find(pods []*v1.Pod, name string) (*v1.Pod, error) {
	name = BareName(name)
	var short []*v1.Pod
	for _, p := range pods {
		if p.Name == name {
			return p, nil
		}
		if p.Spec.NodeName != "" && p.Name == name+"-"+strings.ToLower(p.Spec.NodeName) {
			short = append(short, p)
		}
	}
	switch len(short) {
	case 0:
		return nil, &cli.Error{Code: cli.ExitFailed, Err: &NotFoundError{name}}
	case 1:
		return short[0], nil
	}
	var names []string
	for _, p := range short {
		names = append(names, p.Name)
	}
	return nil, &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("pods %q is ambiguous", name),
		Hint: "use a full name: " + strings.Join(names, ", ")}
}

// FindAll returns the pod of each name as Find does. It fails if one does not exist.
func FindAll(pods []*v1.Pod, names []string) ([]*v1.Pod, error) {
	var selected []*v1.Pod
	for _, name := range names {
		p, err := Find(pods, name)
		if err != nil {
			return nil, err
		}
		selected = append(selected, p)
	}
	return selected, nil
}

// BareName returns the name of a pod without the prefix of a resource type.
func BareName(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(name, "pods/"), "pod/"), "po/")
}
