package cmd

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/cli/request"
)

func restartCommand(a *app) *cobra.Command {
	var o request.RestartOptions
	c := &cobra.Command{
		Use:     "restart POD [CONTAINER] | restart TYPE/NAME",
		Short:   "Restart the containers of pods gracefully",
		Long:    request.RestartHelp,
		Example: "  podrun restart web\n  podrun restart web proxy\n  podrun restart deployment/web",
		Args:    argCount(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			if err := cli.NeedRoot(c.CommandPath()); err != nil {
				return err
			}
			if o.Timeout < 0 {
				return usage(c, fmt.Errorf("--timeout %s: must not be negative", o.Timeout))
			}
			return a.restarter().Restart(c.Context(), o, args)
		},
	}
	c.Flags().StringVarP(&o.Namespace, "namespace", "n", "default", "namespace of the pod")
	c.Flags().StringVarP(&o.Container, "container", "c", "", "container to restart (default: all)")
	c.Flags().DurationVar(&o.Timeout, "timeout", 2*time.Minute,
		"maximum time to wait until the containers of a pod run again; 0: do not wait for that")
	c.ValidArgsFunction = a.completePodAndContainer()
	a.completeFlags(c)
	return c
}

// deleteCommand is what users of kubectl type. It only explains what podrun has instead.
func deleteCommand(a *app) *cobra.Command {
	var f flags.Pods
	c := &cobra.Command{
		Use:     "delete [pod NAME | -f FILE]",
		Hidden:  true,
		Short:   "Explain how to remove a pod",
		Long:    "delete removes nothing: it says how the pod is removed.",
		Example: "  podrun delete pod web",
		// Whatever kubectl's flags are, the answer is the same.
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE: func(c *cobra.Command, args []string) error {
			selection, err := a.selection(c, f, args)
			if err != nil {
				return err
			}
			return query.ExplainDelete(a.pods(), selection, args)
		},
	}
	f.Add(c.Flags())
	f.AddFiles(c.Flags())
	return c
}
