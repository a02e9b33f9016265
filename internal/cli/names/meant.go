package names

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/problems"
	"podrun.io/podrun/internal/agent/sources"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/workload"
)

// Meant returns the error of a command, such as podrun logs, with MeantHint if it is that of a pod that does not exist,
// or with the manifest that serve cannot use and of which the pod would be.
func Meant(dirs layout.Dirs, command string, err error) error {
	var notFound *query.NotFoundError
	var failed *cli.Error
	if !errors.As(err, &notFound) || !errors.As(err, &failed) {
		return err
	}
	key := pod.Key{Namespace: notFound.Namespace, Name: notFound.Name}
	its, perhaps := invalid(dirs, key)
	// A workload of the name and the pod's own manifest are more certain than a similar name, or a pod of another
	// namespace, which failed.Hint has.
	failed.Hint = cmp.Or(MeantHint(dirs, command, key), its, failed.Hint, perhaps)
	return err
}

// invalid returns a hint about the manifest of a pod that serve cannot use: its, if one is that of the pod, else
// perhaps, if it is not known of which pods one is.
func invalid(dirs layout.Dirs, key pod.Key) (its, perhaps string) {
	all, err := problems.Read(dirs)
	if err != nil {
		return "", "" // what runs as root shows to root alone
	}
	named := []string{key.String()}
	if settings, err := sources.ReadSettings(dirs); err == nil {
		for _, node := range settings["node-name"] {
			named = append(named, key.String()+"-"+node)
		}
	}
	for _, p := range all {
		if !filepath.IsAbs(p.Manifest) { // a URL or a command, which validate does not read
			continue
		}
		if slices.Contains(named, p.Pod) {
			return "its manifest is invalid: podrun validate " + p.Manifest, ""
		}
		if p.Pod == "" && perhaps == "" {
			perhaps = "a manifest is invalid, perhaps that of the pod: podrun validate " + p.Manifest
		}
	}
	return "", perhaps
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
