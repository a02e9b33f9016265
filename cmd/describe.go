package cmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli/describe"
	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/query"
)

func describeCommand(a *app) *cobra.Command {
	var f flags.Pods
	c := &cobra.Command{
		Use:     "describe pod NAME... | describe deployment/NAME | describe job/NAME | describe -f FILE",
		Short:   "Show details of a pod",
		Long:    describe.Help,
		Example: "  podrun describe pod web\n  podrun describe pods -l app=web",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && len(f.Files) == 0 {
				return argCount(1, unlimited)(c, args)
			}
			names, err := query.PodNames(args)
			if err != nil {
				return usage(c, err)
			}
			selection, err := a.selection(c, f, names)
			if err != nil {
				return err
			}
			jobs, err := a.pods().Jobs(selection, args)
			if err != nil {
				return err
			}
			printer := &describe.Printer{Out: a.Out, Dirs: a.Dirs(), Log: a.log}
			if crons, err := a.pods().CronJobs(selection, args); err != nil || len(crons) > 0 {
				err = errors.Join(err, printer.CronJobs(crons))
				if err != nil || len(selection.Jobs)+len(selection.Manifests) == 0 {
					return err
				}
				fmt.Fprintln(a.Out)
			}
			pods, err := a.pods().Select(selection, names)
			if err := printer.Jobs(jobs, pods); err != nil {
				return err
			}
			if len(args) > 0 && len(jobs) > 0 && err != nil { // those of a Job may be gone
				return nil
			}
			a.lister().WarnOfAge(pods)
			if err != nil {
				a.lister().WarnOfManifests() // a manifest error may be the reason why a pod does not exist
			}
			if err == nil && len(pods)+len(jobs) == 0 {
				a.lister().SayNone(selection)
			}
			for i, p := range pods {
				if i > 0 || len(jobs) > 0 {
					fmt.Fprintln(a.Out)
				}
				if err := printer.Pod(c.Context(), p); err != nil {
					return err
				}
			}
			return err
		},
	}
	f.Add(c.Flags())
	f.AddFiles(c.Flags())
	c.ValidArgsFunction = a.completeResources(query.Types()...)
	a.completeFlags(c)
	return c
}
