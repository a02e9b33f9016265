package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli/describe"
	"podrun.io/podrun/internal/cli/query"
)

func describeCommand(a *app) *cobra.Command {
	var namespace string
	c := &cobra.Command{
		Use:   "describe pod NAME...",
		Short: "Show details of a pod",
		Long: "describe shows the path of a pod's manifest and the errors in it, the current and the last state\n" +
			"of each container, the pod's conditions, the last log lines of containers that are not well, and\n" +
			"the events of the pod. It also works while serve is down.",
		Example: "  podrun describe pod web",
		Args:    argCount(1, unlimited),
		RunE: func(c *cobra.Command, args []string) error {
			names, err := query.PodNames(args)
			if err == nil && len(names) == 0 {
				err = fmt.Errorf("name a pod")
			}
			if err != nil {
				return usage(c, err)
			}
			pods, err := a.pods().Select(query.Selection{Namespace: namespace}, names)
			a.lister().WarnOfAge(pods)
			if err != nil {
				a.lister().WarnOfManifests() // a manifest error may be the reason why a pod does not exist
			}
			printer := &describe.Printer{Out: a.Out, Dirs: a.Dirs(), Log: a.log}
			for i, p := range pods {
				if i > 0 {
					fmt.Fprintln(a.Out)
				}
				if err := printer.Pod(c.Context(), p); err != nil {
					return err
				}
			}
			return err
		},
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the pods")
	c.ValidArgsFunction = a.completeResources("pods")
	a.completeFlags(c)
	return c
}
