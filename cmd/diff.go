package cmd

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/agent/sources"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/printers"
)

func diffCommand(a *app) *cobra.Command {
	var s flags.Sources
	var only []string
	var output string
	c := &cobra.Command{
		Use:   "diff [FILE|DIR|-...]",
		Short: "Show what serve would change",
		Long: "diff reads the manifests as serve would and prints for each pod whether serve would create,\n" +
			"replace, update, keep or remove it, and the fields that differ, with their old and new values. diff\n" +
			"changes nothing. What its flags do not say, the name of the node or the manifests for example, is as\n" +
			"the serve that runs has it, or the last one if none does.\n" +
			"FILE, or -f FILE, compares what is in it alone, as kubectl diff does. --manifests names the whole set\n" +
			"of manifests: what is not in it is removed. --manifests - is standard input, as is -f -.\n\n" +
			"An update leaves the pod's containers running: of labels, annotations, the deadline, and CPU and\n" +
			"memory, as soon as the machine has them, or of the files of volumes with an edited ConfigMap or\n" +
			"Secret. If the resizePolicy of a container requires that it restarts, diff says so. Environment\n" +
			"variables with values of an edited ConfigMap or Secret keep their old value until the container\n" +
			"restarts, so they are no update.\n\n" +
			"Exit code: 0 serve would change nothing; 1 serve would create, replace, update or remove pods;\n" +
			"2 a source cannot be read or used.",
		Example: "  # show what a new set of manifests would change on this machine\n" +
			"  podrun diff --manifests new/\n\n" +
			"  # show what one manifest would change\n" +
			"  podrun diff -f web.yaml\n\n" +
			"  podrun diff --manifest-url https://pods.example/node1.yaml -o json",
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
			if unlike := flags.AdoptServe(c.Flags(), o.Dirs); unlike != nil {
				cli.Warnf(a.ErrOut, "this may differ from what serve does: %v", unlike)
			}
			if err := s.Options(c.Flags(), &o); err != nil {
				return usage(c, err)
			}
			o.Log = slog.New(slog.DiscardHandler) // problems are in the result
			all, desired, err := agent.Diff(c.Context(), o)
			switch {
			case errors.Is(err, sources.ErrUsage):
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
