package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli/top"
)

type topFlags struct {
	getFlags
	sortBy   string
	interval time.Duration
}

func topCommand(a *app) *cobra.Command {
	var f topFlags
	c := &cobra.Command{
		Use:   "top [POD...]",
		Short: "Show the CPU and memory usage of containers",
		Long: "top shows the CPU usage of containers in millicores, measured over a second by default, and their memory\n" +
			"working set, which does not count cached file data that has not been used recently. It reads the\n" +
			"kernel's cgroups, so it also works while serve is down.",
		Example:           "  podrun top\n  podrun top web\n  podrun top -A --sort-by memory",
		ValidArgsFunction: a.completeManyPods,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case !slices.Contains([]string{"", "cpu", "memory"}, f.sortBy):
				return usage(c, fmt.Errorf("--sort-by %q: must be cpu or memory", f.sortBy))
			case f.interval <= 0:
				return usage(c, fmt.Errorf("--interval %s: must be positive", f.interval))
			case f.allNamespaces && len(args) > 0:
				return usage(c, errors.New("a pod cannot be retrieved by name across all namespaces"))
			}
			if err := f.checkSelector(); err != nil {
				return usage(c, err)
			}
			return runTop(a, c.Context(), f, args)
		},
	}
	c.Flags().StringVarP(&f.namespace, "namespace", "n", "default", "namespace of the pods")
	c.Flags().BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "pods of all namespaces")
	c.Flags().StringVarP(&f.selector, "selector", "l", "", "label selector of the pods")
	c.Flags().StringVar(&f.sortBy, "sort-by", "", "sort by cpu or memory, highest usage first")
	c.Flags().DurationVar(&f.interval, "interval", time.Second, "time over which the CPU usage is measured")
	c.Flags().BoolVar(&f.noHeaders, "no-headers", false, "do not print headers")
	a.completeFlags(c)
	return c
}

func runTop(a *app, ctx context.Context, f topFlags, names []string) error {
	pods, err := a.pods().Select(f.selection(), names)
	if err != nil {
		return err
	}
	all := top.Running(pods)
	if len(all) == 0 {
		fmt.Fprintln(a.ErrOut, "No running containers found")
		return nil
	}
	if all, err = top.Measure(ctx, all, f.interval); err != nil {
		return err
	}
	top.Sort(all, f.sortBy)
	return top.Print(a.Out, all, top.PrintOptions{AllNamespaces: f.allNamespaces, NoHeaders: f.noHeaders})
}
