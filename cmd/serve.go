package cmd

import (
	"errors"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/agent/sdnotify"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/agenterror"
	"podrun.io/podrun/internal/cli/flags"
)

func serveCommand(a *app) *cobra.Command {
	var r flags.Run
	var pods flags.ServedPods
	var garbage flags.Garbage
	var listen flags.Listen
	var shutdown flags.Shutdown
	c := &cobra.Command{
		Use:     "serve",
		Short:   "Keep the pods of all manifests running",
		Long:    flags.ServeHelp,
		Example: flags.ServeExample,
		Args:    argCount(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			o := a.agentOptions()
			if err := r.Options(c.Flags(), &o); err != nil {
				return usage(c, err)
			}
			o.Listen = listen.ListenOptions
			if err := errors.Join(garbage.Options(&o), shutdown.Options(&o), pods.Options(&o)); err != nil {
				return usage(c, err)
			}
			cli.WarnOfVariables(a.log, variables(c.Root()))
			for _, path := range o.Sources.Manifests {
				if path == "-" {
					return usage(c, errors.New("--manifests -: only once, diff and validate read standard input"))
				}
			}
			if err := cli.NeedRoot(c.CommandPath()); err != nil {
				return err
			}
			if err := cli.NeedCgroups(c.CommandPath(), o.Connect.CgroupDriver); err != nil {
				return err
			}
			cli.IgnoreSIGPIPE() // the pods must run on even if nobody reads the log
			o.Hurry, o.Watchdog = a.signals.Second(), sdnotify.Watchdog()
			o.Config = flags.Config(o, c.Flags())
			return agenterror.Explain(c.Context(), c.CommandPath(), agent.Serve(c.Context(), o, pods.Stop))
		},
	}
	listen.Add(c.Flags())
	r.Add(c.Flags())
	garbage.Add(c.Flags())
	shutdown.Add(c.Flags())
	pods.Add(c.Flags())
	return c
}
