package names

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/workload"
)

// Meant returns the error of a command, such as podrun logs, with MeantHint if it is that of a pod that does not exist.
func Meant(dirs layout.Dirs, command string, err error) error {
	var notFound *query.NotFoundError
	var failed *cli.Error
	if !errors.As(err, &notFound) || !errors.As(err, &failed) {
		return err
	}
	if hint := MeantHint(dirs, command, pod.Key{Namespace: notFound.Namespace, Name: notFound.Name}); hint != "" {
		failed.Hint = hint // more certain than a similar name, or a pod of another namespace
	}
	return err
}

// MeantHint returns what to give a command in place of a pod that does not exist, if the serve that runs, or ran last,
// has workloads of its name; "" if it has none.
func MeantHint(dirs layout.Dirs, command string, key pod.Key) string {
	all, err := status.Workloads(dirs)
	if err != nil {
		return "" // what has failed is said already
	}
	of := ""
	if key.Namespace != v1.NamespaceDefault {
		of = " -n " + key.Namespace
	}
	if command == "podrun wait" {
		of += " --for=CONDITION"
	}
	var hints []string
	for _, w := range all {
		if w.Name != key.Name || w.Namespace != key.Namespace {
			continue
		}
		named := strings.ToLower(string(w.Kind)) + "/" + w.Name
		hint := fmt.Sprintf("%s is a %s", named, w.Kind)
		switch {
		case accepts(command, w.Kind):
			hint += fmt.Sprintf(": %s %s%s", command, named, of)
		case w.Kind == workload.CronJob:
			hint += fmt.Sprintf(": podrun get jobs%s lists its Jobs", of)
		case len(w.Pods) == 0:
			hint += " that has no pods now"
		default:
			hint += fmt.Sprintf(" whose pods are %s", strings.Join(w.Pods, ", "))
		}
		hints = append(hints, hint)
	}
	return strings.Join(hints, "; ")
}

// typedCommands are those that accept TYPE/NAME, each with the kinds of workloads for which they do not.
var typedCommands = map[string][]workload.Kind{
	"get": nil, "describe": nil, "wait": nil, "events": nil,
	"logs": {workload.CronJob}, "exec": {workload.CronJob}, "attach": {workload.CronJob},
	"port-forward": {workload.CronJob},
	"restart":      {workload.Job, workload.CronJob},
	"history":      {workload.Job, workload.CronJob},
	"undo":         {workload.Job, workload.CronJob},
}

// accepts reports that a command accepts TYPE/NAME of a kind.
func accepts(command string, kind workload.Kind) bool {
	not, is := typedCommands[strings.TrimPrefix(command, "podrun ")]
	return is && !slices.Contains(not, kind)
}
