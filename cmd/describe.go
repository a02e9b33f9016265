package cmd

import (
	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli/describe"
	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/query"
)

func describeCommand(a *app) *cobra.Command {
	var f flags.Pods
	c := &cobra.Command{
		Use:     "describe pod NAME... | describe deployment/NAME | describe job/NAME | describe -f FILE",
		Short:   "Show details of pods and workloads",
		Long:    describe.Help,
		Example: "  podrun describe pod web\n  podrun describe pods -l app=web",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && len(f.Files) == 0 {
				return argCount(1, unlimited)(c, args)
			}
			names, err := query.PodNames(args)
			if err != nil {
				return usage(c, err)
			}
			selection, err := a.selection(c, f, names)
			if err != nil {
				return err
			}
			printer := &describe.Printer{Out: a.Out, Dirs: a.Dirs(), Log: a.log, Warn: a.lister()}
			return printer.Selected(c.Context(), a.pods(), selection, args, names)
		},
	}
	f.Add(c.Flags())
	f.AddFiles(c.Flags())
	c.ValidArgsFunction = a.completeResources(query.Types()...)
	a.completeFlags(c)
	return c
}
