package cmd

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/query"
)

func waitCommand(a *app) *cobra.Command {
	var f flags.Pods
	var forFlag string
	var all bool
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "wait POD… | -l SELECTOR | --all | -f FILE --for=CONDITION",
		Short: "Wait until pods are ready, done or removed",
		Long:  query.WaitHelp,
		Example: "  podrun wait web --for=condition=Ready --timeout 60s\n  podrun wait job --for=phase=Succeeded\n" +
			"  podrun wait web db --for=delete\n  podrun wait pods --all --for=condition=Ready",
		RunE: func(c *cobra.Command, args []string) error {
			selected := all || f.Selector != "" || len(f.Files) > 0
			if len(args) > 0 && query.IsPods(args[0]) && (selected || len(args) > 1) {
				args = args[1:] // kubectl wait pod NAME, kubectl wait pods --all
			}
			if len(args) == 0 && !selected {
				return argCount(1, unlimited)(c, args)
			}
			if jobs, is := query.JobNames(args); is && timeout >= 0 {
				o := query.JobWait{Namespace: f.Namespace, Names: jobs, For: forFlag, Timeout: timeout}
				return a.pods().WaitJobs(c.Context(), a.Out, o)
			}
			condition, err := query.ParseCondition(forFlag)
			switch {
			case err != nil:
				return usage(c, err)
			case timeout < 0:
				return usage(c, fmt.Errorf("--timeout %s: must not be negative", timeout))
			case all && len(args) > 0:
				return usage(c, errors.New("name the pods, or give --all"))
			}
			selection, err := a.selection(c, f, args)
			if err != nil {
				return err
			}
			pods, err := a.pods().WaitFor(selection, args, condition(nil))
			if err == nil && !condition(nil) && forFlag != "create" {
				err = a.pending().CheckAwaited(c.Context(), pods)
			}
			if err != nil {
				return err
			}
			o := query.WaitOptions{Pods: pods, Condition: condition, Timeout: timeout}
			return a.pods().Wait(c.Context(), a.Out, o)
		},
	}
	c.Flags().StringVar(&forFlag, "for", "",
		"condition to wait for: condition=NAME[=VALUE], phase=NAME, jsonpath={PATH}[=VALUE], create or delete")
	c.Flags().BoolVar(&all, "all", false, "all pods of the namespace")
	f.Add(c.Flags())
	f.AddFiles(c.Flags())
	c.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "maximum time to wait; 0: check once")
	c.ValidArgsFunction = a.completeManyPods
	a.completeFlags(c)
	return c
}
