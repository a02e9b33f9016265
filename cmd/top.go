package cmd

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/cli/top"
)

type topFlags struct {
	flags.Pods
	top.Options
}

func topCommand(a *app) *cobra.Command {
	var f topFlags
	c := &cobra.Command{
		Use:               "top [POD...]|node",
		Short:             "Show the CPU and memory usage of containers or of the machine",
		Long:              top.Help,
		Example:           "  podrun top\n  podrun top web\n  podrun top -A --sort-by memory\n  podrun top node",
		ValidArgsFunction: a.completeManyPods,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case !slices.Contains([]string{"", "cpu", "memory"}, f.SortBy):
				return usage(c, fmt.Errorf("--sort-by %q: must be cpu or memory", f.SortBy))
			case f.Interval <= 0:
				return usage(c, fmt.Errorf("--interval %s: must be positive", f.Interval))
			}
			if len(args) > 0 && query.IsNode(args[0]) {
				return top.ShowNode(c.Context(), a.Streams, a.Dirs(), args[1:], f.Options)
			}
			if len(args) > 0 && query.IsPods(args[0]) {
				args = args[1:] // kubectl top pod NAME
			}
			return runTop(a, c, f, args)
		},
	}
	f.Add(c.Flags())
	c.Flags().StringVar(&f.SortBy, "sort-by", "", "sort by cpu or memory, highest usage first")
	c.Flags().DurationVar(&f.Interval, "interval", time.Second, "time over which the CPU usage is measured")
	c.Flags().BoolVar(&f.NoHeaders, "no-headers", false, "do not print headers")
	_ = c.RegisterFlagCompletionFunc("sort-by",
		cobra.FixedCompletions([]string{"cpu", "memory"}, cobra.ShellCompDirectiveNoFileComp))
	a.completeFlags(c) // it does not replace the completion of --sort-by
	return c
}

func runTop(a *app, c *cobra.Command, f topFlags, names []string) error {
	selection, err := a.selection(c, f.Pods, names)
	if err != nil {
		return err
	}
	pods, err := a.pods().Select(selection, names)
	if err != nil {
		return err
	}
	f.Options.AllNamespaces = f.Pods.AllNamespaces
	return top.Show(c.Context(), a.Streams, pods, f.Options)
}
