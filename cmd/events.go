package cmd

import (
	"errors"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli/list"
	"podrun.io/podrun/internal/cli/query"
)

func eventsCommand(a *app) *cobra.Command {
	var f list.EventFlags
	c := &cobra.Command{
		Use:     "events [POD]",
		Short:   "Show events, oldest first",
		Long:    list.EventsHelp,
		Example: list.EventsExample,
		Args:    argCount(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			name := query.BareName(f.Pod)
			if len(args) > 0 {
				name = query.BareName(args[0])
			}
			if len(args) > 0 && f.Pod != "" {
				return usage(c, errors.New("give a pod or --for, not both"))
			}
			return listEvents(a, c, f, name)
		},
	}
	f.AddTo(c.Flags())
	c.ValidArgsFunction = a.completePods
	_ = c.RegisterFlagCompletionFunc("for",
		func(c *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
			return a.completePods(c, nil, text)
		})
	a.completeFlags(c) // it does not replace the completion of --for
	return c
}

// listEvents lists events for get and events.
func listEvents(a *app, c *cobra.Command, f list.EventFlags, name string) error {
	o, err := f.Checked(name)
	if err != nil {
		return usage(c, err)
	}
	return a.lister().Events(c.Context(), o, name, f.Types)
}
