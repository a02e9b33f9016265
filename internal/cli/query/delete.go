package query

import (
	"errors"
	"fmt"
	"slices"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
)

// ExplainDelete returns the error of podrun delete: how the pod that args name is removed. args are those of kubectl
// delete.
func ExplainDelete(r *Reader, namespace string, args []string) error {
	names := slices.DeleteFunc(slices.Clone(args), IsPods)
	explanation := &cli.Error{
		Code: cli.ExitUsage,
		Err:  errors.New("podrun has no delete: a pod exists as long as its manifest does"),
		Hint: "remove the pod's file from the manifest directory and serve removes the pod; podrun down removes pods " +
			"that no process runs; podrun restart restarts one",
	}
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
