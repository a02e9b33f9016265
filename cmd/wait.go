package cmd

import (
	"time"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/wait"
)

func waitCommand(a *app) *cobra.Command {
	var f flags.Pods
	var w wait.Wait
	c := &cobra.Command{
		Use:     "wait POD… | job/NAME… | -l SELECTOR | --all | -f FILE --for=CONDITION",
		Short:   "Wait until pods are ready, done or removed",
		Long:    wait.Help,
		Example: wait.Example,
		RunE: func(c *cobra.Command, args []string) error {
			w.Reader, w.Serve = a.pods(), a.pending()
			names, err := w.Parse(f.Namespace, args, f.Selector != "" || len(f.Files) > 0)
			if err != nil {
				return usage(c, err)
			}
			selection, err := a.selection(c, f, names)
			if err != nil {
				return err
			}
			return w.Run(c.Context(), a.Out, selection, names)
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
