package query

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
)

// Selection selects pods.
type Selection struct {
	Namespace     string
	AllNamespaces bool
	Labels        string // a label selector; "" selects all pods
	// Manifests are pods by their names in manifests, whatever the namespace of the selection is. none selects
	// all pods.
	Manifests []pod.Key
	// Jobs are Jobs of manifests, and CronJobs CronJobs, like Manifests.
	Jobs, CronJobs []pod.Key
	// Workloads are the other workloads of manifests, whose pods are among Manifests.
	Workloads []Made
}

// Made is a workload of a manifest with the pods that are made of it, by their names in manifests.
type Made struct {
	workload.ID
	Pods []pod.Key
}

// HasWorkloads reports that manifests of the selection have workloads.
func (s Selection) HasWorkloads() bool { return len(s.Jobs)+len(s.CronJobs)+len(s.Workloads) > 0 }

// Bare returns the pods of manifests that no workload has made.
func (s Selection) Bare() []pod.Key {
	bare := slices.Clone(s.Manifests)
	for _, w := range s.Workloads {
		bare = slices.DeleteFunc(bare, func(key pod.Key) bool { return slices.Contains(w.Pods, key) })
	}
	return bare
}

// Of returns the objects of a kind that manifests of the selection have.
func (s Selection) Of(kind workload.Kind) []pod.Key {
	switch kind {
	case workload.Job:
		return slices.Clone(s.Jobs)
	case workload.CronJob:
		return slices.Clone(s.CronJobs)
	}
	var keys []pod.Key
	for _, w := range s.Workloads {
		if w.Kind == kind {
			keys = append(keys, w.Key)
		}
	}
	return keys
}

// Select returns the pods of a selection or, if names are given, the pods of its namespace with these names.
// It returns the pods that exist even if there is an error.
func (r *Reader) Select(f Selection, names []string) ([]*v1.Pod, error) {
	pods, err := r.Settled()
	if err != nil {
		return nil, err
	}
	keys := slices.Clone(f.Manifests)
	if names, err = r.Expand(f.Namespace, names); err != nil {
		return nil, err
	}
	for _, name := range names {
		keys = append(keys, pod.Key{Namespace: f.Namespace, Name: name})
	}
	for _, job := range f.Jobs { // all of its pods that exist; there may be none any more
		of := PodsOf(pods, workload.ID{Kind: workload.Job, Key: job})
		for _, p := range of {
			keys = append(keys, pod.KeyOf(p))
		}
	}
	if len(keys)+len(f.Jobs)+len(f.CronJobs) > 0 {
		return findKeys(pods, keys)
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
	return pods, nil
}

// findKeys returns the pods with these namespaces and names, those that exist even if there is an error.
func findKeys(pods []*v1.Pod, keys []pod.Key) ([]*v1.Pod, error) {
	var selected []*v1.Pod
	var failures []error
	for _, key := range keys {
		p, err := FindIn(pods, key.Namespace, key.Name)
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
	return FindIn(pods, namespace, name)
}

// FindIn returns the pod of a namespace as Find does. If it does not exist, the error has what may have been meant: a
// pod whose name is similar, or one of that name in another namespace.
func FindIn(pods []*v1.Pod, namespace, name string) (*v1.Pod, error) {
	if err := onePod(pods, namespace, name); err != nil {
		return nil, err
	}
	here := InNamespace(pods, namespace)
	p, err := Find(here, name)
	var notFound *NotFoundError
	var failed *cli.Error
	if !errors.As(err, &notFound) || !errors.As(err, &failed) {
		return p, err
	}
	notFound.Namespace = namespace
	if near := nearest(BareName(name), podNames(here)); near != "" {
		failed.Hint = fmt.Sprintf("did you mean %s?", near)
	}
	if elsewhere := Namespaces(ByName(pods, name)); len(elsewhere) > 0 {
		failed.Hint = fmt.Sprintf("a pod of that name is in namespace %s: -n %s",
			strings.Join(elsewhere, ", "), elsewhere[0])
	}
	return nil, err
}

// podNames returns the names of pods in their manifests, and their full names.
func podNames(pods []*v1.Pod) []string {
	var names []string
	for _, p := range pods {
		names = append(names, ShortName(p), p.Name)
	}
	return names
}

// nearest returns the one of names that is most similar to name, or "" if none is.
func nearest(name string, names []string) string {
	near, _ := decode.Nearest(name, names)
	return near
}

// InNamespace returns the pods of a namespace.
func InNamespace(pods []*v1.Pod, namespace string) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p *v1.Pod) bool { return p.Namespace != namespace })
}

// NotFoundError is the error that a pod does not exist. Namespace is "" if Find alone has looked for it.
type NotFoundError struct{ Namespace, Name string }

func (e *NotFoundError) Error() string { return fmt.Sprintf("pods %q not found", e.Name) }

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
		return nil, &cli.Error{Code: cli.ExitFailed, Err: &NotFoundError{Name: name}}
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

// FindAll returns the pod of each name in the namespace as FindIn does. It fails if one does not exist.
func FindAll(pods []*v1.Pod, namespace string, names []string) ([]*v1.Pod, error) {
	var selected []*v1.Pod
	for _, name := range names {
		p, err := FindIn(pods, namespace, name)
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
