package cmd

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli/query"
)

func waitCommand(a *app) *cobra.Command {
	var namespace, forFlag string
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "wait POD… --for=CONDITION",
		Short: "Wait until pods are ready, done or removed",
		Long: "wait exits when each of the pods has met the condition of --for, or with exit code 1 at the\n" +
			"timeout. It also waits for pods that do not exist yet. Whether a pod is ready is unknown while no\n" +
			"process runs it, so wait then waits until a process does. --for is one of\n\n" +
			"  condition=NAME[=True|False]  a condition of the pod: Ready, Initialized, ContainersReady, …\n" +
			"  phase=NAME                   Pending, Running, Succeeded or Failed\n" +
			"  jsonpath={PATH}[=VALUE]      a field of the pod exists, or has that value\n" +
			"  delete                       the pod has been removed",
		Example: "  podrun wait web --for=condition=Ready --timeout 60s\n  podrun wait job --for=phase=Succeeded\n" +
			"  podrun wait web db --for=delete",
		Args: argCount(1, unlimited),
		RunE: func(c *cobra.Command, args []string) error {
			condition, err := query.ParseCondition(forFlag)
			switch {
			case err != nil:
				return usage(c, err)
			case timeout < 0:
				return usage(c, fmt.Errorf("--timeout %s: must not be negative", timeout))
			}
			return a.pods().Wait(c.Context(), a.Out, query.WaitOptions{
				Namespace: namespace, Names: args, Condition: condition, Timeout: timeout,
			})
		},
	}
	c.Flags().StringVar(&forFlag, "for", "",
		"condition to wait for: condition=NAME[=VALUE], phase=NAME, jsonpath={PATH}[=VALUE] or delete")
	c.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the pods")
	c.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "maximum time to wait; 0: check once")
	c.ValidArgsFunction = a.completeManyPods
	a.completeFlags(c)
	return c
}
