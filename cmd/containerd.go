package cmd

import (
	"time"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/embedded"
)

// containerdCommand returns the hidden command that podrun starts when it needs a containerd and
// none is running.
func containerdCommand(a *app) *cobra.Command {
	var noSync bool
	var grace time.Duration
	c := &cobra.Command{
		Use:     "containerd",
		Short:   "Run podrun's own containerd",
		Long:    "containerd runs the containerd that is built into podrun, until nothing needs it any more.",
		Example: "  podrun containerd --root-dir /var/lib/podrun --run-dir /run/podrun",
		Hidden:  true,
		Args:    argCount(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			err := embedded.Serve(c.Context(), embedded.Options{
				Dirs:      a.Dirs(),
				Log:       a.log,
				NoSync:    noSync,
				IdleGrace: grace,
			})
			if err != nil && c.Context().Err() == nil {
				return &cli.Error{Code: cli.ExitNoRuntime, Err: err}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&noSync, "no-sync", false, "do not sync the database to disk; a power loss may corrupt it")
	c.Flags().DurationVar(&grace, "idle-grace", embedded.DefaultIdleGrace, "time to keep running when nothing needs it")
	return c
}
