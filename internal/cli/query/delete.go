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

// ExplainDelete returns the error of podrun delete: how the pod or the workload that args name is removed. args are
// those of kubectl delete.
func ExplainDelete(r *Reader, namespace string, args []string) error {
	explanation := &cli.Error{
		Code: cli.ExitUsage,
		Err:  errors.New("podrun has no delete: a pod exists as long as its manifest does"),
		Hint: "remove the pod's file from the manifest directory and serve removes the pod; podrun down removes pods " +
			"that no process runs; podrun restart restarts one",
	}
	if kind, names, ok := WorkloadArgs(args); ok && len(names) > 0 {
		id := workload.ID{Kind: kind, Key: pod.Key{Namespace: namespace, Name: names[0]}}
		return r.explainWorkload(id, explanation)
	}
	names := slices.DeleteFunc(slices.Clone(args), IsPods)
	if len(names) == 0 {
		return explanation
	}
	p, err := r.Named(namespace, names[0])
	if err != nil {
		explanation.Err = fmt.Errorf("%w; %w", explanation.Err, err)
		return explanation
	}
	if owned, known := r.Owners.Kept(pod.KeyOf(p)); known && !owned {
		explanation.Hint = fmt.Sprintf("no process runs pod %s: podrun down -n %s %s removes it", p.Name, p.Namespace, p.Name)
		return explanation
	}
	if path := manifest.OriginOf(p).Path; path != "" {
		explanation.Hint = fmt.Sprintf("pod %s is in %s: remove that, and the pod is removed; podrun restart restarts it",
			p.Name, path)
	}
	return explanation
}

// explainWorkload gives the explanation the manifest of a workload.
func (r *Reader) explainWorkload(id workload.ID, explanation *cli.Error) error {
	kind := strings.ToLower(string(id.Kind))
	explanation.Err = fmt.Errorf("podrun has no delete: a %s exists as long as its manifest does", kind)
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
		explanation.Err = fmt.Errorf("%w; %w", explanation.Err, WorkloadNotFound(id))
		return explanation
	default: // podrun once has made them, or another serve
		path = manifest.OriginOf(of[0]).Path
	}
	owned := len(of) == 0 || slices.ContainsFunc(of, func(p *v1.Pod) bool {
		owned, known := r.Owners.Kept(pod.KeyOf(p))
		return owned || !known
	})
	switch {
	case !owned:
		var names []string
		for _, p := range of {
			names = append(names, p.Name)
		}
		explanation.Hint = fmt.Sprintf("no process runs the pods of %s %s: podrun down -n %s %s removes them",
			kind, id.Key.Name, id.Key.Namespace, strings.Join(names, " "))
	case path != "":
		explanation.Hint = fmt.Sprintf("%s %s is in %s: remove that, and its pods are removed", kind, id.Key.Name, path)
	default:
		explanation.Hint = fmt.Sprintf("remove the document of %s %s from its manifest, and its pods are removed",
			kind, id.Key.Name)
	}
	return explanation
}
