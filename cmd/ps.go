package cmd

import (
	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli/list"
)

func psCommand(a *app) *cobra.Command {
	var f list.Flags
	c := &cobra.Command{
		Use:     "ps [NAME...]",
		Short:   "List pods; the same as get pods",
		Example: "  podrun ps -A",
		RunE:    func(c *cobra.Command, args []string) error { return listPods(a, c, f, args) },
	}
	f.AddTo(c.Flags())
	c.ValidArgsFunction = a.completeManyPods
	a.completeFlags(c)
	return c
}
