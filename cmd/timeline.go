package cmd

import (
	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/timeline"
)

func timelineCommand(a *app) *cobra.Command {
	var o timeline.Options
	c := &cobra.Command{
		Use:     "timeline [POD]",
		Short:   "Show what the last start of pods spent its time on",
		Long:    timeline.Help,
		Example: "  podrun timeline\n  podrun timeline web\n  podrun timeline -o svg >boot.svg",
		Args:    argCount(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.Check(); err != nil {
				return usage(c, err)
			}
			if err := cli.NeedRoot(c.CommandPath()); err != nil {
				return err
			}
			o.Named, o.Socket = a.pods().Named, a.Dirs().Socket()
			return timeline.Show(c.Context(), a.Out, o, args)
		},
	}
	c.Flags().StringVarP(&o.Namespace, "namespace", "n", "default", "namespace of the pod")
	c.Flags().StringVarP(&o.Output, "output", "o", "", "output format: json or svg (default: bars of text)")
	c.ValidArgsFunction = a.completePods
	a.completeFlags(c)
	return c
}
