package cmd

import (
	"time"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/query"
)

func waitCommand(a *app) *cobra.Command {
	var f flags.Pods
	var w query.Wait
	c := &cobra.Command{
		Use:     "wait POD… | job/NAME… | -l SELECTOR | --all | -f FILE --for=CONDITION",
		Short:   "Wait until pods are ready, done or removed",
		Long:    query.WaitHelp,
		Example: query.WaitExample,
		RunE: func(c *cobra.Command, args []string) error {
			names, err := w.Parse(a.pods(), f.Namespace, args, f.Selector != "" || len(f.Files) > 0)
			if err != nil {
				return usage(c, err)
			}
			selection, err := a.selection(c, f, names)
			if err != nil {
				return err
			}
			w.Check = a.pending().CheckAwaited
			return w.Run(c.Context(), a.pods(), a.Out, selection, names)
		},
	}
	c.Flags().StringVar(&w.For, "for", "",
		"condition to wait for: condition=NAME[=VALUE], phase=NAME, jsonpath={PATH}[=VALUE], create or delete")
	c.Flags().BoolVar(&w.All, "all", false, "all pods, or workloads of the type, of the namespace")
	f.Add(c.Flags())
	f.AddFiles(c.Flags())
	c.Flags().DurationVar(&w.Timeout, "timeout", 30*time.Second, "maximum time to wait; 0: check once")
	c.ValidArgsFunction = a.completeManyPods
	a.completeFlags(c)
	return c
}
