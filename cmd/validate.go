package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/lint"
)

func validateCommand(a *app) *cobra.Command {
	var output string
	var loading flags.Loading
	c := &cobra.Command{
		Use:   "validate FILE|DIR|-...",
		Short: "Check manifests as serve would",
		Long: "validate reads manifests as serve does and prints every error with its file, line and field. It\n" +
			"warns about manifests that users other than root and the owner can write. The environment\n" +
			"variables that set flags of serve set them here too: PODRUN_NODE_NAME, PODRUN_NO_NODE_SUFFIX and\n" +
			"PODRUN_POD_SECURITY.\n\n" +
			"Exit code: 0 all manifests can be used; 1 some cannot; 2 some cannot be read.",
		Example: "  podrun validate /etc/pods\n  podrun validate web.yaml job.yaml -o json\n" +
			"  podrun validate - < web.yaml",
		Args: argCount(1, unlimited),
		RunE: func(c *cobra.Command, paths []string) error {
			if output != "text" && output != "json" {
				return usage(c, fmt.Errorf("-o %q: must be text or json", output))
			}
			o, err := loading.Options()
			if err != nil {
				return usage(c, err)
			}
			findings, err := lint.Check(c.Context(), paths, lint.Options{
				Stdin:    a.In,
				NodeName: o.NodeName,
				NoSuffix: o.NoSuffix,
				Policy:   o.Policy,
			})
			if err != nil {
				return err
			}
			return findings.Print(a.Streams, output == "json")
		},
	}
	loading.Add(c.Flags())
	c.Flags().StringVarP(&output, "output", "o", "text", "output format: text or json")
	return c
}
