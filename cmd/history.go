package cmd

import (
	"time"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/describe"
	"podrun.io/podrun/internal/cli/request"
)

func historyCommand(a *app) *cobra.Command {
	var o describe.HistoryOptions
	c := &cobra.Command{
		Use:     "history POD | TYPE/NAME",
		Short:   "List the revisions of a pod or workload",
		Long:    describe.HistoryHelp,
		Example: describe.HistoryExample,
		Args:    argCount(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			if err := cli.NeedRoot(c.CommandPath()); err != nil {
				return err
			}
			return describe.History(a.pods(), a.Streams, o, args)
		},
	}
	c.Flags().StringVarP(&o.Namespace, "namespace", "n", "default", "namespace of the pod")
	c.Flags().StringVarP(&o.Output, "output", "o", "", "output format: json (default: a table)")
	c.ValidArgsFunction = a.completeRevised
	a.completeFlags(c)
	return c
}

func undoCommand(a *app) *cobra.Command {
	var namespace string
	c := &cobra.Command{
		Use:     "undo POD | TYPE/NAME",
		Short:   "Go back to the former revision of a pod or workload",
		Long:    request.UndoHelp,
		Example: request.UndoExample,
		Args:    argCount(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			if err := cli.NeedRoot(c.CommandPath()); err != nil {
				return err
			}
			requests := owner.NewUndoRequests(a.Dirs(), a.log)
			u := request.Undoer{Streams: a.Streams, Reader: a.pods(), Requests: requests, Accept: 30 * time.Second}
			return u.Revision(c.Context(), namespace, args)
		},
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the pod")
	c.ValidArgsFunction = a.completeRevised
	a.completeFlags(c)
	return c
}
