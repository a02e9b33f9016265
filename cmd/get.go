package cmd

import (
	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/lint"
	"podrun.io/podrun/internal/cli/list"
	"podrun.io/podrun/internal/cli/query"
)

func getCommand(a *app) *cobra.Command {
	var f list.Flags
	c := &cobra.Command{
		Use:     "get pods [NAME...] | get -f FILE | get deployments | get volumes | get plugins | get events",
		Short:   "List pods, volumes, plugins or events",
		Long:    list.Help,
		Example: list.Example,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && len(f.Files) == 0:
				return argCount(1, unlimited)(c, args)
			case len(args) > 0 && (query.IsVolumes(args[0]) || query.IsPlugins(args[0])):
				o, err := f.WholeOptions(args[0], args[1:])
				return listWith(c, o, err, a.lister().Whole(args[0]))
			case len(args) > 0 && query.ListsWorkloads(args[0]):
				o, err := f.WorkloadOptions(args)
				list := func(o list.Options) error { return a.lister().Workloads(c.Context(), o, args) }
				return listWith(c, o, err, list)
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
	c.ValidArgsFunction = a.completeResources(query.Listed()...)
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
		err = lint.Select(c.Context(), f.Files, a.In, &s)
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
