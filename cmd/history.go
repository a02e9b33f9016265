package cmd

import (
	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/describe"
)

func historyCommand(a *app) *cobra.Command {
	var o describe.HistoryOptions
	c := &cobra.Command{
		Use:     "history POD | TYPE/NAME",
		Short:   "List the revisions of a pod or workload",
		Long:    describe.HistoryHelp,
		Example: describe.HistoryExample,
		Args:    argCount(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			if err := cli.NeedRoot(c.CommandPath()); err != nil {
				return err
			}
			return describe.History(a.pods(), a.Streams, o, args)
		},
	}
	c.Flags().StringVarP(&o.Namespace, "namespace", "n", "default", "namespace of the pod")
	c.Flags().StringVarP(&o.Output, "output", "o", "", "output format: json (default: a table)")
	c.ValidArgsFunction = a.completePods
	a.completeFlags(c)
	return c
}
