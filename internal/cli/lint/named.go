package lint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/manifest/support"
	"podrun.io/podrun/internal/pod"
)

// Named returns the pods of manifests by their names in them. It fails if one of the manifests cannot be used.
func Named(ctx context.Context, paths []string, stdin io.Reader) ([]pod.Key, error) {
	o := Options{Stdin: stdin, NodeName: "node", NoSuffix: true, Rules: support.Rules{IgnoreNodeName: true}}
	found, err := Check(ctx, paths, o)
	if err != nil {
		return nil, err
	}
	wrong := found.unreadable
	for _, e := range found.Errors {
		wrong = append(wrong, e)
	}
	var keys []pod.Key
	for _, p := range found.Pods {
		keys = append(keys, pod.Key{Namespace: p.Namespace, Name: p.Name})
	}
	if len(wrong) == 0 && len(keys) == 0 {
		wrong = []error{fmt.Errorf("%s: no pods in it", strings.Join(paths, ", "))}
	}
	if len(wrong) > 0 {
		return nil, &cli.Error{Code: cli.ExitUsage, Err: errors.Join(wrong...)}
	}
	return keys, nil
}
