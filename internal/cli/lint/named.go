package lint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/manifest/support"
	"podrun.io/podrun/internal/pod"
)

// Select adds to a selection what manifests have, by the names in them: the workloads, and the pods but those of Jobs.
// It fails if one of the manifests cannot be used.
func Select(ctx context.Context, paths []string, stdin io.Reader, into *query.Selection) error {
	o := Options{Stdin: stdin, NodeName: "node", NoSuffix: true, Rules: support.Rules{IgnoreNodeName: true}}
	found, err := Check(ctx, paths, o)
	if err != nil {
		return err
	}
	into.Jobs, into.CronJobs, into.Workloads = found.jobs, found.cronJobs, found.workloads
	wrong := found.unreadable
	for _, e := range found.Errors {
		wrong = append(wrong, e)
	}
	for _, p := range found.Pods {
		if key := (pod.Key{Namespace: p.Namespace, Name: p.Name}); !slices.Contains(found.ofJobs, key) {
			into.Manifests = append(into.Manifests, key)
		}
	}
	if len(wrong) == 0 && len(into.Manifests) == 0 && !into.HasWorkloads() {
		wrong = []error{fmt.Errorf("%s: no pods in it", strings.Join(paths, ", "))}
	}
	if len(wrong) > 0 {
		return &cli.Error{Code: cli.ExitUsage, Err: errors.Join(wrong...)}
	}
	return nil
}
