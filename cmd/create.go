package cmd

import (
	"time"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/names"
	"podrun.io/podrun/internal/cli/request"
)

func createCommand(a *app) *cobra.Command {
	var o request.JobOptions
	c := &cobra.Command{
		Use:     "create job NAME --from=cronjob/NAME",
		Short:   "Run a CronJob now",
		Long:    request.CreateHelp,
		Example: "  podrun create job now --from=cronjob/backup",
		RunE: func(c *cobra.Command, args []string) error {
			if err := cli.NeedRoot(c.CommandPath()); err != nil {
				return err
			}
			requests := owner.NewJobRequests(a.Dirs(), a.log)
			r := request.Creator{Streams: a.Streams, Reader: a.pods(), Requests: requests, Accept: 30 * time.Second}
			return r.Job(c.Context(), o, args)
		},
	}
	c.Flags().StringVarP(&o.Namespace, "namespace", "n", "default", "namespace of the CronJob")
	c.Flags().StringVar(&o.From, "from", "", "CronJob from which the Job is made: cronjob/NAME")
	c.ValidArgsFunction = cobra.FixedCompletions([]string{"job"}, cobra.ShellCompDirectiveNoFileComp)
	_ = c.RegisterFlagCompletionFunc("from", a.completes(func(*cobra.Command, []string, string) []string {
		all, _ := names.Workloads(a.Dirs(), o.Namespace, nil, "cronjob/")
		return all
	}))
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return request.CreateFlagError(c.Flags().Args(), flagError(c, err))
	})
	a.completeFlags(c)
	return c
}
