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
	noHeaders bool
	sortBy    string
	interval  time.Duration
}

func topCommand(a *app) *cobra.Command {
	var f topFlags
	c := &cobra.Command{
		Use:               "top [POD...]",
		Short:             "Show the CPU and memory usage of containers",
		Long:              top.Help,
		Example:           "  podrun top\n  podrun top web\n  podrun top -A --sort-by memory",
		ValidArgsFunction: a.completeManyPods,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case !slices.Contains([]string{"", "cpu", "memory"}, f.sortBy):
				return usage(c, fmt.Errorf("--sort-by %q: must be cpu or memory", f.sortBy))
			case f.interval <= 0:
				return usage(c, fmt.Errorf("--interval %s: must be positive", f.interval))
			}
			if len(args) > 0 && query.IsPods(args[0]) {
				args = args[1:] // kubectl top pod NAME
			}
			return runTop(a, c, f, args)
		},
	}
	f.Add(c.Flags())
	c.Flags().StringVar(&f.sortBy, "sort-by", "", "sort by cpu or memory, highest usage first")
	c.Flags().DurationVar(&f.interval, "interval", time.Second, "time over which the CPU usage is measured")
	c.Flags().BoolVar(&f.noHeaders, "no-headers", false, "do not print headers")
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
	return top.Show(c.Context(), a.Streams, pods, top.Options{
		SortBy: f.sortBy, Interval: f.interval, AllNamespaces: f.AllNamespaces, NoHeaders: f.noHeaders,
	})
}
