package cmd

import (
	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

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
		Example:           "  podrun top\n  podrun top web\n  podrun top -A --sort-by memory\n  podrun top --watch\n  podrun top node",
		ValidArgsFunction: a.completeManyPods,
		RunE: func(c *cobra.Command, args []string) error {
			node := len(args) > 0 && query.IsNode(args[0])
			if err := f.Options.Check(node); err != nil {
				return usage(c, err)
			}
			if node {
				return top.ShowNode(c.Context(), a.Streams, a.Dirs(), args[1:], f.Options)
			}
			if len(args) > 0 && query.IsPods(args[0]) {
				args = args[1:] // kubectl top pod NAME
			}
			return runTop(a, c, f, args)
		},
	}
	f.Pods.Add(c.Flags())
	f.Options.Add(c.Flags())
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
	f.Options.AllNamespaces, f.Options.Socket = f.Pods.AllNamespaces, a.Dirs().Socket()
	pods := a.pods()
	read := func() ([]*v1.Pod, error) { return pods.Select(selection, names) }
	return top.Show(c.Context(), a.Streams, read, f.Options)
}
