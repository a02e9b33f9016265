package query

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/status/summary"
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
	{workload.CronJob, []string{"cronjobs", "cronjob", "cj"}},
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

// Kinds returns all kinds of workloads.
func Kinds() []workload.Kind {
	var all []workload.Kind
	for _, t := range workloadTypes {
		all = append(all, t.kind)
	}
	return all
}

// Types returns the resource types that describe takes, pods first.
func Types() []string {
	types := []string{"pods"}
	for _, t := range workloadTypes {
		types = append(types, t.names[0])
	}
	return types
}

// Listed returns all resource types that get takes.
func Listed() []string { return append(Types(), "volumes", "plugins", "events") }

// typeAll is what kubectl calls several types together: here pods and workloads.
const typeAll = "all"

// ListsWorkloads reports that an argument, `deployments`, `deployment/NAME`, `deployments,pods` or `all`, names
// workloads or several types.
func ListsWorkloads(arg string) bool {
	resource, _, _ := strings.Cut(arg, "/")
	return strings.Contains(resource, ",") || resource == typeAll || WorkloadKind(resource) != ""
}

// TypesAndNames returns the kinds and the names in the arguments `deployments NAME...`, `deployment/NAME...` or
// `deployments,pods NAME...`, or in `all`. The kind "" is pods.
func TypesAndNames(args []string) (kinds []workload.Kind, names []string, err error) {
	if kind, names, ok := WorkloadArgs(args); ok {
		return []workload.Kind{kind}, names, nil
	}
	if strings.Contains(args[0], "/") {
		return nil, nil, fmt.Errorf("%s: name objects of one type", strings.Join(args, " "))
	}
	for resource := range strings.SplitSeq(args[0], ",") {
		if resource == typeAll {
			if len(args) > 1 {
				return nil, nil, errors.New("all has no names: name objects of one type")
			}
			return append([]workload.Kind{""}, Kinds()...), nil, nil
		}
		kind := WorkloadKind(resource)
		if kind == "" && !IsPods(resource) {
			return nil, nil, fmt.Errorf("%q of %q: only pods and workloads are listed together", resource, args[0])
		}
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds, args[1:], nil
}

// WorkloadName returns the workload that TYPE/NAME is, and whether it is one.
func WorkloadName(namespace, name string) (workload.ID, bool) {
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
		id, is := WorkloadName("", arg)
		if !is || kind != "" && kind != id.Kind {
			return "", nil, false
		}
		kind, names = id.Kind, append(names, id.Key.Name)
	}
	return kind, names, true
}

// JoinType returns the arguments TYPE NAME as the one TYPE/NAME, and others as they are. If a pod has the name of the
// type, it is meant.
func (r *Reader) JoinType(namespace string, args []string) ([]string, error) {
	if len(args) != 2 || WorkloadKind(args[0]) == "" && !IsPods(args[0]) {
		return args, nil
	}
	pods, err := r.Pods()
	if err != nil || len(ByName(InNamespace(pods, namespace), args[0])) > 0 {
		return args, err
	}
	if IsPods(args[0]) {
		return []string{"pod/" + args[1]}, nil
	}
	return []string{args[0] + "/" + args[1]}, nil
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

// AnyNamed returns the pod of the name or, as kubectl does where one pod is needed, one of the workload TYPE/NAME: the
// first that is ready, else that runs, else that exists.
func (r *Reader) AnyNamed(namespace, name string) (*v1.Pod, error) {
	id, is := WorkloadName(namespace, BareName(name))
	if !is {
		return r.Named(namespace, name)
	}
	pods, err := r.Pods()
	if err != nil {
		return nil, err
	}
	all := PodsOf(pods, id)
	if len(all) == 0 {
		return nil, onePod(pods, namespace, name)
	}
	rank := func(p *v1.Pod) int {
		switch s := summary.Of(p); {
		case s.Ready == s.Containers:
			return 0
		case p.Status.Phase == v1.PodRunning:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(all, func(a, b *v1.Pod) int { return cmp.Compare(rank(a), rank(b)) })
	return all[0], nil
}

// saved returns a workload of the serve that runs, or ran last; nil if it has none of that name.
func (r *Reader) saved(id workload.ID) (*status.Workload, error) {
	all, err := status.Workloads(r.Dirs)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if w := &all[i]; w.Kind == id.Kind && w.Namespace == id.Key.Namespace && w.Name == id.Key.Name {
			return w, nil
		}
	}
	return nil, nil
}

// onePod returns an error of a name TYPE/NAME that is not a pod's, where one pod is needed: what to name in its place.
func onePod(pods []*v1.Pod, namespace, name string) error {
	kind, _, typed := strings.Cut(BareName(name), "/")
	if !typed {
		return nil
	}
	err := &cli.Error{
		Code: cli.ExitUsage, Err: fmt.Errorf("%q is no pod: must be NAME or pod/NAME", name), Hint: insteadOf(kind),
	}
	if id, is := WorkloadName(namespace, name); is {
		var names []string
		for _, p := range PodsOf(pods, id) {
			names = append(names, "pod/"+ShortName(p))
		}
		err.Hint = "it has no pods now"
		if len(names) > 0 {
			err.Hint = "name one of its pods: " + strings.Join(names, ", ")
		}
	}
	return err
}

// Expand returns names with the full names of its pods in place of each workload. Of a workload that serve
// has, they need not exist.
func (r *Reader) Expand(namespace string, names []string) ([]string, error) {
	var all []string
	for _, name := range names {
		id, ok := WorkloadName(namespace, name)
		if !ok {
			if err := onePod(nil, namespace, name); err != nil {
				return nil, err
			}
			all = append(all, name)
			continue
		}
		saved, err := r.saved(id)
		if err != nil {
			return nil, err
		}
		if saved != nil && len(saved.Pods) == 0 {
			return nil, &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("%s has no pods now", name)}
		}
		if saved != nil {
			all = append(all, saved.Pods...)
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
