package cmd

import "github.com/spf13/cobra"

func psCommand(a *app) *cobra.Command {
	var f getFlags
	c := &cobra.Command{
		Use:     "ps [NAME...]",
		Short:   "List pods; the same as get pods",
		Example: "  podrun ps -A",
		RunE:    func(c *cobra.Command, args []string) error { return listPods(a, c, f, args) },
	}
	f.add(c)
	c.ValidArgsFunction = a.completeManyPods
	a.completeFlags(c)
	return c
}
