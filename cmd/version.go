package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli/version"
)

func versionCommand(a *app) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of podrun and containerd",
		Long: "version prints the versions of podrun and of the containerd that podrun would use, if it is\n" +
			"running. It does not start containerd.",
		Example: "  podrun version\n  podrun version -o json",
		Args:    argCount(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return usage(c, fmt.Errorf("-o %q: must be json", output))
			}
			versions := version.Built()
			versions.AskServer(c.Context(), a.connection())
			return versions.Print(a.Out, output == "json")
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "output format: json")
	return c
}
