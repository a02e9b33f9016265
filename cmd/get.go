package cmd

import (
	"strings"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/lint"
	"podrun.io/podrun/internal/cli/list"
	"podrun.io/podrun/internal/cli/query"
)

func getCommand(a *app) *cobra.Command {
	var f list.Flags
	c := &cobra.Command{
		Use:   "get pods [NAME...] | get -f FILE | get deployments | get volumes | get events",
		Short: "List pods, volumes or events",
		Long: "get pods lists the pods with the status that serve last published. While serve is down, it also\n" +
			"prints the age of that status. NAME is the full name of a pod or its name in the manifest. REASON\n" +
			"is the reason why a pod is not well, cut off at the width of the terminal; podrun describe prints\n" +
			"all of it. A pod that no process runs is Unowned; REASON then shows the age of its last status.\n\n" +
			"-o manifest prints pods as they may be put back into the directory of manifests: without status,\n" +
			"defaults and what podrun adds.\n\n" +
			"get deployments lists the Deployments of serve with their pods counted, and so do statefulsets,\n" +
			"daemonsets and replicasets; those of podrun once are listed as long as they have pods. get jobs shows\n" +
			"what has become of the Jobs of serve, also when their pods are gone.\n\n" +
			"get volumes lists the volumes of persistentVolumeClaims and the pods that use them. get events is\n" +
			"the same as podrun events.",
		Example: "  podrun get pods\n  podrun get volumes -A\n  podrun get deployment web\n  podrun get jobs\n" +
			"  podrun get pods -A -o wide\n  podrun get pod web -o yaml\n  podrun get pods -l app=web -w\n" +
			"  podrun get -f /etc/pods/web.yaml\n" +
			"  podrun get pods -o jsonpath='{.items[*].metadata.name}'\n" +
			"  podrun get pods -o custom-columns=POD:.metadata.name,IP:.status.podIP",
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && len(f.Files) == 0:
				return argCount(1, unlimited)(c, args)
			case len(args) > 0 && query.IsVolumes(args[0]):
				o, err := f.VolumeOptions(args[1:])
				return listWith(c, o, err, a.lister().Volumes)
			case len(args) > 0 && query.WorkloadKind(strings.Split(args[0], "/")[0]) != "":
				o, err := f.WorkloadOptions()
				return listWith(c, o, err, func(o list.Options) error { return a.lister().Workloads(o, args) })
			case len(args) == 1 && query.IsEvents(args[0]) && f.Selector == "":
				return listEvents(a, c, list.EventFlags{Flags: f}, "")
			}
			names, err := query.PodNames(args)
			if err != nil {
				return usage(c, err)
			}
			return listPods(a, c, f, names)
		},
	}
	f.AddTo(c.Flags())
	c.ValidArgsFunction = a.completeResources("pods", "volumes", "events")
	a.completeFlags(c)
	return c
}

// listPods lists pods for get and ps.
func listPods(a *app, c *cobra.Command, f list.Flags, names []string) error {
	o, err := f.PodOptions(a.Dirs())
	if err != nil {
		return usage(c, err)
	}
	if o.Selection, err = a.selection(c, f.Pods, names); err != nil {
		return err
	}
	return a.lister().Pods(c.Context(), o, names)
}

// selection checks the flags and returns the pods that they select. names are the pods that the arguments name.
func (a *app) selection(c *cobra.Command, f flags.Pods, names []string) (query.Selection, error) {
	s := query.Selection{Namespace: f.Namespace, AllNamespaces: f.AllNamespaces, Labels: f.Selector}
	err := f.Check(names)
	if err != nil {
		return s, usage(c, err)
	}
	if len(f.Files) > 0 {
		s.Manifests, err = lint.Named(c.Context(), f.Files, a.In)
	}
	return s, err
}

// listWith lists what is not pods, with the options that the flags give.
func listWith(c *cobra.Command, o list.Options, err error, print func(list.Options) error) error {
	if err != nil {
		return usage(c, err)
	}
	return print(o)
}
