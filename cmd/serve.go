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
	var stopPods bool
	var garbage flags.Garbage
	var listen flags.Listen
	var shutdown flags.Shutdown
	c := &cobra.Command{
		Use:   "serve",
		Short: "Keep the pods of all manifests running",
		Long:  flags.ServeHelp,
		Example: "  # run the pods of a machine\n  podrun serve --manifests /etc/pods\n\n" +
			"  # two sources, separate directories, JSON logs\n" +
			"  podrun serve --manifests /etc/pods --manifests /srv/extra.yaml \\\n" +
			"    --root-dir /data/podrun --log-format json\n\n" +
			"  # run the pods that a server returns; ps does not show a secret in an environment variable\n" +
			"  PODRUN_MANIFEST_URL_HEADER='Authorization: Bearer s3cret' \\\n" +
			"    podrun serve --manifest-url https://pods.example/node1.yaml",
		Args: argCount(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			o := a.agentOptions()
			if err := r.Options(c.Flags(), &o); err != nil {
				return usage(c, err)
			}
			o.Listen = listen.ListenOptions
			if err := errors.Join(garbage.Options(&o), shutdown.Options(&o)); err != nil {
				return usage(c, err)
			}
			for _, path := range o.Sources.Manifests {
				if path == "-" {
					return usage(c, errors.New("--manifests -: only once, diff and validate read standard input"))
				}
			}
			if err := cli.NeedRoot(c.CommandPath()); err != nil {
				return err
			}
			cli.IgnoreSIGPIPE() // the pods must run on even if nobody reads the log
			o.Hurry, o.Watchdog, o.Config = a.signals.Second(), sdnotify.Watchdog(), flags.Config(o)
			return agenterror.Explain(c.Context(), c.CommandPath(), agent.Serve(c.Context(), o, stopPods))
		},
	}
	listen.Add(c.Flags())
	r.Add(c.Flags())
	garbage.Add(c.Flags())
	shutdown.Add(c.Flags())
	c.Flags().BoolVar(&stopPods, "stop-pods", false, "stop and remove the pods when serve ends")
	return c
}
