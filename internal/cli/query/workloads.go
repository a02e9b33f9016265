package query

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/workload"
)

// workloadTypes are the resource types of workloads, the plural first.
var workloadTypes = []struct {
	kind  workload.Kind
	names []string
}{
	{workload.Deployment, []string{"deployments", "deployment", "deploy"}},
	{workload.ReplicaSet, []string{"replicasets", "replicaset", "rs"}},
	{workload.StatefulSet, []string{"statefulsets", "statefulset", "sts"}},
	{workload.DaemonSet, []string{"daemonsets", "daemonset", "ds"}},
	{workload.Job, []string{"jobs", "job"}},
}

// WorkloadKind returns the kind of workloads that a resource type, or one of apps or batch, is; "" if it is none.
func WorkloadKind(resource string) workload.Kind {
	resource = strings.TrimSuffix(strings.TrimSuffix(resource, ".apps"), ".batch")
	for _, t := range workloadTypes {
		if slices.Contains(t.names, resource) {
			return t.kind
		}
	}
	return ""
}

// workloadName returns the workload that TYPE/NAME is, and whether it is one.
func workloadName(namespace, name string) (workload.ID, bool) {
	resource, rest, _ := strings.Cut(name, "/")
	kind := WorkloadKind(resource)
	return workload.ID{Kind: kind, Key: pod.Key{Namespace: namespace, Name: rest}}, kind != "" && rest != ""
}

// WorkloadArgs returns the kind and the names in the arguments `deployments NAME...` or
// `deployment/NAME...`, and whether they name workloads.
func WorkloadArgs(args []string) (kind workload.Kind, names []string, ok bool) {
	if len(args) == 0 {
		return "", nil, false
	}
	if kind := WorkloadKind(args[0]); kind != "" {
		return kind, args[1:], true
	}
	for _, arg := range args {
		id, is := workloadName("", arg)
		if !is || kind != "" && kind != id.Kind {
			return "", nil, false
		}
		kind, names = id.Kind, append(names, id.Key.Name)
	}
	return kind, names, true
}

// WorkloadNotFound returns the error that a workload does not exist.
func WorkloadNotFound(id workload.ID) error {
	for _, t := range workloadTypes {
		if t.kind == id.Kind {
			return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("%s %q not found", t.names[0], id.Key.Name)}
		}
	}
	return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("%s not found", id)}
}

// PodsOf returns those of pods that belong to a workload.
func PodsOf(pods []*v1.Pod, id workload.ID) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p *v1.Pod) bool {
		of, ok := workload.Of(p)
		return !ok || of != id
	})
}

// expand returns names with the full names of its pods in place of each workload. Of a workload that serve
// has, they need not exist.
func (r *Reader) expand(namespace string, names []string) ([]string, error) {
	var all []string
	for _, name := range names {
		id, ok := workloadName(namespace, name)
		if !ok {
			all = append(all, name)
			continue
		}
		saved, err := status.Workloads(r.Dirs)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(saved, func(w status.Workload) bool {
			return w.Kind == id.Kind && w.Namespace == namespace && w.Name == id.Key.Name
		})
		if i >= 0 && len(saved[i].Pods) == 0 {
			return nil, &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("%s has no pods now", name)}
		}
		if i >= 0 {
			all = append(all, saved[i].Pods...)
			continue
		}
		pods, err := r.Pods()
		if err != nil {
			return nil, err
		}
		of := PodsOf(pods, id)
		if len(of) == 0 {
			return nil, WorkloadNotFound(id)
		}
		for _, p := range of {
			all = append(all, p.Name)
		}
	}
	return all, nil
}
