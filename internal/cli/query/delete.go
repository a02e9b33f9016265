package query

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
)

// ExplainDelete returns the error of podrun delete: how each of the pods and workloads that args or the manifests of
// the selection name is removed. args are those of kubectl delete.
func ExplainDelete(r *Reader, s Selection, args []string) error {
	all := explanation{what: "pod"}
	kind, names, typed := WorkloadArgs(args)
	if typed {
		all.what = strings.ToLower(string(kind))
	} else {
		names = slices.DeleteFunc(slices.Clone(args), IsPods)
	}
	for _, name := range names {
		key := pod.Key{Namespace: s.Namespace, Name: name}
		if err := r.explain(&all, workload.ID{Kind: kind, Key: key}); err != nil {
			return err
		}
	}
	for _, kind := range Kinds() {
		for _, key := range s.Of(kind) {
			all.what = strings.ToLower(string(kind))
			if err := r.explain(&all, workload.ID{Kind: kind, Key: key}); err != nil {
				return err
			}
		}
	}
	for _, key := range s.Bare() {
		all.what = "pod"
		if err := r.explain(&all, workload.ID{Key: key}); err != nil {
			return err
		}
	}
	return all.err()
}

// explanation collects how objects are removed.
type explanation struct {
	what    string // what the last one is
	missing []error
	hints   []string
}

// err returns the explanation as an error.
func (e *explanation) err() error {
	err := fmt.Errorf("podrun has no delete: a %s exists as long as its manifest does", e.what)
	if len(e.hints)+len(e.missing) > 1 {
		err = errors.New("podrun has no delete: what is in a manifest exists as long as the manifest does")
	}
	for _, missing := range e.missing {
		err = fmt.Errorf("%w; %w", err, missing)
	}
	if len(e.hints) == 0 {
		e.hints = []string{"remove the pod's file from the manifest directory and serve removes the pod; podrun down " +
			"removes pods that no process runs; podrun restart restarts one"}
	}
	return &cli.Error{Code: cli.ExitUsage, Err: err, Hint: strings.Join(e.hints, "\nhint: ")}
}

// explain adds how a workload, or a pod if its kind is "", is removed.
func (r *Reader) explain(into *explanation, id workload.ID) error {
	if id.Kind != "" {
		return r.explainWorkload(into, id)
	}
	p, err := r.Named(id.Key.Namespace, id.Key.Name)
	if err != nil {
		into.missing = append(into.missing, err)
		return nil
	}
	if owned, known := r.Owners.Kept(pod.KeyOf(p)); known && !owned {
		into.hints = append(into.hints,
			fmt.Sprintf("no process runs pod %s: podrun down -n %s %s removes it", p.Name, p.Namespace, p.Name))
	} else if path := manifest.OriginOf(p).Path; path != "" {
		into.hints = append(into.hints, fmt.Sprintf(
			"pod %s is in %s: remove that, and the pod is removed; podrun restart restarts it", p.Name, path))
	}
	return nil
}

// explainWorkload adds how a workload is removed.
func (r *Reader) explainWorkload(into *explanation, id workload.ID) error {
	kind := strings.ToLower(string(id.Kind))
	saved, err := r.saved(id)
	if err != nil {
		return err
	}
	pods, err := r.Pods()
	if err != nil {
		return err
	}
	of := PodsOf(pods, id)
	var path string
	switch {
	case saved != nil:
		path = saved.Manifest
	case len(of) == 0:
		into.missing = append(into.missing, WorkloadNotFound(id))
		return nil
	default: // podrun once has made them, or another serve
		path = manifest.OriginOf(of[0]).Path
	}
	owned := len(of) == 0 || slices.ContainsFunc(of, func(p *v1.Pod) bool {
		owned, known := r.Owners.Kept(pod.KeyOf(p))
		return owned || !known
	})
	hint := fmt.Sprintf("remove the document of %s %s from its manifest, and its pods are removed", kind, id.Key.Name)
	switch {
	case !owned:
		var names []string
		for _, p := range of {
			names = append(names, p.Name)
		}
		hint = fmt.Sprintf("no process runs the pods of %s %s: podrun down -n %s %s removes them",
			kind, id.Key.Name, id.Key.Namespace, strings.Join(names, " "))
	case path != "":
		hint = fmt.Sprintf("%s %s is in %s: remove that, and its pods are removed", kind, id.Key.Name, path)
	}
	into.hints = append(into.hints, hint)
	return nil
}
