package lint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/manifest/support"
	"podrun.io/podrun/internal/pod"
)

// Named returns the pods of manifests by their names in them, and the Jobs, whose pods are not among these. It fails if
// one of the manifests cannot be used.
func Named(ctx context.Context, paths []string, stdin io.Reader) (pods, jobs []pod.Key, err error) {
	o := Options{Stdin: stdin, NodeName: "node", NoSuffix: true, Rules: support.Rules{IgnoreNodeName: true}}
	found, err := Check(ctx, paths, o)
	if err != nil {
		return nil, nil, err
	}
	wrong := found.unreadable
	for _, e := range found.Errors {
		wrong = append(wrong, e)
	}
	for _, p := range found.Pods {
		if key := (pod.Key{Namespace: p.Namespace, Name: p.Name}); !slices.Contains(found.ofJobs, key) {
			pods = append(pods, key)
		}
	}
	if len(wrong) == 0 && len(pods)+len(found.jobs) == 0 {
		wrong = []error{fmt.Errorf("%s: no pods in it", strings.Join(paths, ", "))}
	}
	if len(wrong) > 0 {
		return nil, nil, &cli.Error{Code: cli.ExitUsage, Err: errors.Join(wrong...)}
	}
	return pods, found.jobs, nil
}
