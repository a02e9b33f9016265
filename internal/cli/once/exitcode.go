package once

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/result"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/cli/report"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status/summary"
	"podrun.io/podrun/internal/workload"
)

// exitCode returns the exit code of a run in which a pod has failed: that of the container that
// --exit-code-from names, if it has failed.
func (r *run) exitCode(result result.Result) int {
	name := r.exitCodeContainer
	for _, p := range r.exitCodePods(result) {
		for _, role := range summary.InitialFirst(summary.Roles(p)) {
			if role.Kind() == "sidecar" && name == "" || name != "" && role.Container.Name != name {
				continue // podrun stops sidecars
			}
			if code := report.ExitCode(role.Status); code != 0 {
				return code
			}
		}
	}
	return cli.ExitFailed
}

// exitCodePods returns the pod that --exit-code-from names, or those of the Job, the newest first.
func (r *run) exitCodePods(result result.Result) []*v1.Pod {
	if r.exitCodeOf == nil {
		return nil
	}
	for _, j := range jobsOf(result) {
		if j.Name == r.exitCodeJob && j.Namespace == r.exitCodeOf.Namespace {
			slices.Reverse(j.Pods)
			return j.Pods
		}
	}
	return slices.DeleteFunc(slices.Clone(result.Pods), func(p *v1.Pod) bool {
		return pod.KeyOf(p) != pod.KeyOf(r.exitCodeOf)
	})
}

// desired checks --exit-code-from before anything is started.
func (r *run) desired(want manifest.Desired) error {
	if r.ExitCodeFrom == "" {
		return nil
	}
	source, container, err := exitCodeSource(sources(want), r.ExitCodeFrom)
	if err == nil && container != "" {
		_, err = query.Container(io.Discard, source.pod, container)
	}
	if err != nil {
		var failed *cli.Error
		hint := ""
		if errors.As(err, &failed) {
			hint = failed.Hint
		}
		return &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("--exit-code-from %s: %w", r.ExitCodeFrom, err), Hint: hint}
	}
	r.exitCodeOf, r.exitCodeContainer = source.pod, container
	if source.kind == workload.Job {
		r.exitCodeJob = source.key.Name
	}
	return nil
}

// source is a pod or a Job that --exit-code-from may name.
type source struct {
	kind workload.Kind // "": a pod
	key  pod.Key
	pod  *v1.Pod // of a Job, its template
}

// sources returns the pods of manifests, and after them the Jobs, each sorted by their names.
func sources(want manifest.Desired) []source {
	var all []source
	for key, p := range want.Pods {
		all = append(all, source{key: key, pod: p})
	}
	for _, w := range want.Workloads {
		if w.Kind == workload.Job {
			all = append(all, source{w.Kind, w.Key, w.Template})
		}
	}
	slices.SortFunc(all, func(a, b source) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), a.key.Compare(b.key))
	})
	return all
}

// named reports that the source has a name; that of a pod is the full one, or that in its manifest.
func (s source) named(name string) bool {
	if s.kind == "" {
		return len(query.ByName([]*v1.Pod{s.pod}, name)) > 0
	}
	return s.key.Name == name
}

// exitCodeSource returns what --exit-code-from names, and the container of it, or "": NAME of a pod, or else of a Job,
// or else TYPE/NAME, or else NAMESPACE/NAME, each of them with /CONTAINER or not.
func exitCodeSource(all []source, from string) (s source, container string, err error) {
	first, rest, _ := strings.Cut(from, "/")
	second, last, _ := strings.Cut(rest, "/")
	kind, isPod := query.WorkloadKind(first), query.BareName(from) != from
	for _, try := range []struct {
		name, container string
		fits            func(source) bool
	}{
		{first, rest, func(s source) bool { return s.kind == "" }},
		{first, rest, func(s source) bool { return s.kind != "" }},
		{second, last, func(s source) bool { return s.kind == kind && (kind != "" || isPod) }},
		{second, last, func(s source) bool { return s.key.Namespace == first }},
	} {
		matching := slices.DeleteFunc(slices.Clone(all), func(s source) bool {
			return !try.fits(s) || !s.named(try.name)
		})
		if len(matching) > 0 {
			s, err = onlyOne(matching, try.name)
			return s, try.container, err
		}
	}
	if kind == workload.Job && second != "" {
		return source{}, "", query.WorkloadNotFound(workload.ID{Kind: kind, Key: pod.Key{Name: second}})
	}
	name := first
	if isPod || second != "" && slices.ContainsFunc(all, func(s source) bool { return s.key.Namespace == first }) {
		name = second
	}
	_, err = query.Find(nil, name)
	return source{}, "", err
}

// onlyOne returns the source that has the name. If sources of several namespaces have it, that is an error.
func onlyOne(matching []source, name string) (source, error) {
	var namespaces, full []string
	for _, s := range matching {
		if !slices.Contains(namespaces, s.key.Namespace) {
			namespaces = append(namespaces, s.key.Namespace)
			full = append(full, s.key.Namespace+"/"+name)
		}
	}
	if len(namespaces) > 1 {
		return source{}, &cli.Error{
			Code: cli.ExitUsage,
			Err:  fmt.Errorf("several namespaces have it: %s", strings.Join(namespaces, ", ")),
			Hint: "name one of them: " + strings.Join(full, ", "),
		}
	}
	exact := slices.IndexFunc(matching, func(s source) bool { return s.key.Name == name })
	return matching[max(exact, 0)], nil // a full name before the same one in a manifest
}
