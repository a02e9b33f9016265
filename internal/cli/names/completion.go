// Package names has what the shell completes: names of pods, workloads and volumes, ports, and conditions of podrun
// wait. It says which workload was meant by the name of a pod that does not exist.
package names

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/status/summary"
	"podrun.io/podrun/internal/volume/claims"
	"podrun.io/podrun/internal/workload"
)

// Selectable returns the pods of the namespaces that the flags of an incomplete command line select.
func Selectable(pods []*v1.Pod, f *pflag.FlagSet) []*v1.Pod {
	if all, err := f.GetBool("all-namespaces"); err == nil && all {
		return pods
	}
	namespace, err := f.GetString("namespace")
	if err != nil {
		return pods
	}
	return query.InNamespace(pods, namespace)
}

// Pods returns the completions for the names of pods, each with the state of the pod: the name in the manifest, or the
// full name if several pods have that name. It leaves out pods that are in exclude.
func Pods(pods []*v1.Pod, exclude []string) []string {
	count := map[string]int{}
	for _, p := range pods {
		count[query.ShortName(p)]++
	}
	var completions []string
	for _, p := range pods {
		name := query.ShortName(p)
		if count[name] > 1 {
			name = p.Name
		}
		if !slices.Contains(exclude, name) && !slices.Contains(exclude, p.Name) {
			completions = append(completions, name+"\t"+summary.Of(p).Text)
		}
	}
	return completions
}

// Ports returns the completions of a port of pods: the ports that their containers name, each with its name and
// container, after the local port in text if it has one.
func Ports(pods []*v1.Pod, text string) []string {
	local := ""
	if i := strings.LastIndex(text, ":"); i >= 0 {
		local = text[:i+1]
	}
	var completions []string
	for _, p := range pods {
		for _, c := range pod.AllContainers(p) {
			for _, port := range c.Ports {
				if port.Protocol == v1.ProtocolUDP || port.Protocol == v1.ProtocolSCTP {
					continue // port-forward forwards TCP alone
				}
				about := strings.TrimSpace(port.Name + " of " + c.Name)
				completions = append(completions, fmt.Sprintf("%s%d\t%s", local, port.ContainerPort, about))
			}
		}
	}
	return completions
}

// Workloads returns the completions of names of workloads in a namespace: TYPE/NAME if text begins so, or NAME after a
// type in args. ok is false if it is neither.
func Workloads(dirs layout.Dirs, namespace string, args []string, text string) (completions []string, ok bool) {
	resource, _, typed := strings.Cut(text, "/")
	prefix := resource + "/"
	if !typed && len(args) > 0 {
		resource, prefix = args[0], ""
	}
	kind := query.WorkloadKind(resource)
	if kind == "" {
		return nil, false
	}
	saved, err := status.Workloads(dirs)
	if err != nil {
		return nil, true
	}
	for _, w := range saved {
		if w.Kind == kind && w.Namespace == namespace && !slices.Contains(args, prefix+w.Name) {
			completions = append(completions, prefix+w.Name)
		}
	}
	slices.Sort(completions)
	return completions, true
}

// Revised returns the completions of what has revisions, one of pods or a workload of a namespace: its name, or
// TYPE/NAME, or NAME after a type in args.
func Revised(pods []*v1.Pod, dirs layout.Dirs, namespace string, args []string, text string) []string {
	switch of, is := Workloads(dirs, namespace, args, text); {
	case is && len(args) < 2:
		return of
	case len(args) > 0:
		return nil
	}
	completions := Pods(pods, nil)
	for _, kind := range query.Kinds() {
		if kind == workload.Job || kind == workload.CronJob {
			continue
		}
		of, _ := Workloads(dirs, namespace, nil, strings.ToLower(string(kind))+"/")
		completions = append(completions, of...)
	}
	return completions
}

// ofPods and ofObjects are the values of --for of podrun wait: those of pods, and the conditions that objects of a kind
// have themselves.
var (
	ofPods    = []string{"condition=Ready", "phase=Succeeded", "phase=Failed", "phase=Running", "create", "delete"}
	ofObjects = map[workload.Kind][]string{
		workload.Deployment:  {"condition=Complete", "condition=Available", "condition=Progressing"},
		workload.ReplicaSet:  {"condition=Complete"},
		workload.StatefulSet: {"condition=Complete"},
		workload.DaemonSet:   {"condition=Complete"},
		workload.Job:         {"condition=Complete", "condition=Failed", "condition=Suspended", "create", "delete"},
		workload.CronJob:     {"create", "delete"},
	}
)

// Conditions returns the completions of --for of podrun wait for its arguments; of all kinds if they name nothing.
func Conditions(args []string) []string {
	kind, _, is := query.WorkloadArgs(args)
	switch own := ofObjects[kind]; {
	case kind == workload.Job || kind == workload.CronJob:
		return own
	case len(args) == 0 || !is && strings.Contains(strings.Join(args, " "), "/"): // or of several kinds
		all := slices.Concat(ofPods, ofObjects[workload.Deployment], ofObjects[workload.Job])
		slices.Sort(all)
		return slices.Compact(all)
	default: // of the pods of other workloads as well
		return slices.Concat(own, ofPods)
	}
}

// Volumes returns the volumes of persistentVolumeClaims in a namespace that can be removed and that exclude lacks.
func Volumes(dirs layout.Dirs, namespace string, exclude []string) []string {
	all, _ := claims.List(dirs, nil)
	var names []string
	for _, claim := range all {
		none := claim.Status == claims.Pending && claim.Driver == ""
		if claim.Namespace == namespace && !none && !slices.Contains(exclude, claim.Name) {
			names = append(names, claim.Name)
		}
	}
	return names
}
