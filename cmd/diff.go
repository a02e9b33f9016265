package cmd

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/agenterror"
	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/printers"
)

func diffCommand(a *app) *cobra.Command {
	var s flags.Sources
	var only []string
	var output string
	c := &cobra.Command{
		Use:     "diff [FILE|DIR|-...]",
		Short:   "Show what serve would change",
		Long:    flags.DiffHelp,
		Example: flags.DiffExample,
		Args: func(c *cobra.Command, args []string) error {
			if only = append(only, args...); len(only) > 0 && c.Flags().Changed("manifests") {
				return usage(c, errors.New("give either --manifests, the whole set, or -f FILE"))
			}
			return manifestFiles(c, only)
		},
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return usage(c, fmt.Errorf("-o %q: must be text or json", output))
			}
			o := a.agentOptions()
			cli.WarnOf(a.ErrOut, "this may differ from what serve does", flags.AdoptServe(c.Flags(), o.Dirs))
			if err := s.Options(c.Flags(), &o); err != nil {
				return usage(c, err)
			}
			o.Log = slog.New(slog.DiscardHandler) // problems are in the result
			all, desired, err := agent.Diff(c.Context(), o)
			switch {
			case agenterror.IsUsage(err):
				return usage(c, err)
			case err != nil && c.Context().Err() == nil:
				return &cli.Error{Code: cli.ExitUsage, Err: err}
			case err != nil:
				return err
			}
			return printers.Changes(a.Streams, all, desired, printers.ChangesOptions{
				JSON: output == "json", DesiredOnly: len(only) > 0,
			})
		},
	}
	s.AddWithout(c.Flags())
	c.Flags().StringArrayVarP(&only, "filename", "f", nil, "compare only what is in this file or directory; repeatable")
	c.Flags().StringVarP(&output, "output", "o", "text", "output format: text or json")
	return c
}
