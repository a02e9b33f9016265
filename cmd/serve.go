package cmd

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/agent/connection"
	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/agent/sdnotify"
	"podrun.io/podrun/internal/agent/sources"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/reconcile"
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
		Long: "serve runs the pods of all manifests, restarts containers as the restartPolicy of each pod says,\n" +
			"and applies every change of the manifests, until SIGTERM or SIGINT stops it. The pods then\n" +
			"continue to run, and the next serve takes them over without a restart. A manifest that becomes\n" +
			"invalid never stops a running pod.\n\n" +
			"A pod that another process owns, such as once, is shown as OwnedByOther. serve takes it over as\n" +
			"soon as that process releases it. serve does not touch pods that once runs or has left running if\n" +
			"no manifest of serve names them.\n\n" +
			"With --manifest-url and without --manifests, /etc/pods is read only if it exists, or as soon as it\n" +
			"exists. The last response of the URL is kept on disk, for a restart while the server is down.",
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
					return usage(c, errors.New("--manifests -: standard input is read by once only"))
				}
			}
			if err := cli.NeedRoot(c.CommandPath()); err != nil {
				return err
			}
			cli.IgnoreSIGPIPE() // the pods must run on even if nobody reads the log
			o.Hurry, o.Notify = a.signals.Second(), sdnotify.FromEnvironment(os.Getenv)
			return a.agentError(c, agent.Serve(c.Context(), o, stopPods))
		},
	}
	listen.Add(c.Flags())
	r.Add(c.Flags())
	garbage.Add(c.Flags())
	shutdown.Add(c.Flags())
	c.Flags().BoolVar(&stopPods, "stop-pods", false, "stop and remove the pods when serve ends")
	return c
}

// agentOptions returns the options of the agent that all commands share.
func (a *app) agentOptions() agent.Options {
	return agent.Options{
		Dirs:        a.Dirs(),
		Connect:     a.connection(),
		Stdin:       a.In,
		Log:         a.log,
		LogRotation: flags.DefaultRotation,
	}
}

// ownedHint returns the hint for a command that failed because another process owns a pod.
func ownedHint(command string, owned *owner.OwnedError) string {
	const wait = "wait until that one has ended, or end it"
	switch {
	case command == "down":
		return "nothing was stopped; " + wait
	case owned.Serve:
		return "nothing was started; serve keeps it: take its manifest away first, or leave it to serve"
	}
	return "nothing was started; " + wait
}

// agentError gives an error of the agent its exit code and hint.
func (a *app) agentError(c *cobra.Command, err error) error {
	var bad *sources.ManifestError
	var elsewhere *connection.ElsewhereError
	var owned *owner.OwnedError
	var locked *reconcile.LockError
	switch {
	case errors.Is(err, sources.ErrUsage):
		return usage(c, err)
	case errors.As(err, &bad):
		return &cli.Error{
			Code: cli.ExitUsage,
			Err:  err,
			Hint: "nothing was started; podrun validate checks manifests without running them",
		}
	case errors.As(err, &owned):
		return &cli.Error{Code: cli.ExitUsage, Err: err, Hint: ownedHint(c.Name(), owned)}
	case errors.As(err, &locked):
		return &cli.Error{Code: cli.ExitUsage, Err: err, Hint: "no pod was changed"}
	case errors.As(err, &elsewhere):
		return &cli.Error{Code: cli.ExitFailed, Err: err, Hint: elsewhere.Hint()}
	case errors.Is(err, owner.ErrEnding):
		return &cli.Error{Code: cli.ExitFailed, Err: err, Hint: "wait until it is done, or interrupt it"}
	case errors.Is(err, owner.ErrServing):
		return &cli.Error{
			Code: cli.ExitFailed,
			Err:  err,
			Hint: "stop it first, or give this one its own --run-dir and --root-dir",
		}
	}
	return unreachable(c.Context(), err)
}
