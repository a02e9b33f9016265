package cmd

import (
	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/logs"
	"podrun.io/podrun/internal/cli/query"
)

func logsCommand(a *app) *cobra.Command {
	var f flags.ContainerLogs
	c := &cobra.Command{
		Use:   "logs POD [CONTAINER] | logs -l SELECTOR",
		Short: "Print the logs of containers",
		Long:  logs.Help,
		Example: "  podrun logs web\n  podrun logs -f --tail 20 web -c app\n  podrun logs --previous web\n" +
			"  podrun logs -f web --all-containers\n  podrun logs -l app=web --tail 5",
		ValidArgsFunction: a.completePodAndContainer(),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 2 && f.Container == "" && !f.All && f.Selector == "" {
				f.Container, args = args[1], args[:1]
			}
			if err := f.Check(c.Flags(), args); err != nil {
				return usage(c, err)
			}
			if f.Selector == "" && len(args) != 1 {
				return argCount(1, 1)(c, args)
			}
			return runLogs(a, c, f, args)
		},
	}
	f.Add(c.Flags())
	a.completeFlags(c)
	return c
}

func runLogs(a *app, c *cobra.Command, f flags.ContainerLogs, args []string) error {
	pods, err := a.pods().Select(query.Selection{Namespace: f.Namespace, Labels: f.Selector}, args)
	if err != nil {
		return err
	}
	printer := &logs.Printer{Out: a.Out, ErrOut: a.ErrOut, Pods: a.pods()}
	selected, err := printer.Select(pods, logs.Selection{
		Container: f.Container, All: f.All, Previous: f.Previous, Several: f.All || f.Selector != "" || len(pods) > 1,
	})
	if err != nil {
		return err
	}
	o := logs.Options{Follow: f.Follow, Timestamps: f.Timestamps, Tail: f.Tail, Since: f.Since, Prefix: f.Prefix}
	if !c.Flags().Changed("prefix") {
		o.Prefix = len(selected) > 1
	}
	return printer.Print(c.Context(), selected, o)
}
