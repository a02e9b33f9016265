package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/lint"
)

func validateCommand(a *app) *cobra.Command {
	var output, node, podSecurity string
	var noSuffix bool
	c := &cobra.Command{
		Use:   "validate FILE|DIR|-...",
		Short: "Check manifests as serve would",
		Long: "validate reads manifests as serve does and prints every error with its file, line and field. It\n" +
			"warns about manifests that users other than root and the owner can write.\n\n" +
			"Exit code: 0 all manifests can be used; 1 some cannot; 2 some cannot be read.",
		Example: "  podrun validate /etc/pods\n  podrun validate web.yaml job.yaml -o json\n" +
			"  podrun validate - < web.yaml",
		Args: argCount(1, unlimited),
		RunE: func(c *cobra.Command, paths []string) error {
			if output != "text" && output != "json" {
				return usage(c, fmt.Errorf("-o %q: must be text or json", output))
			}
			node, err := flags.NodeName(node)
			if err != nil {
				return usage(c, err)
			}
			policy, err := flags.Policy(podSecurity)
			if err != nil {
				return usage(c, err)
			}
			findings, err := lint.Check(c.Context(), paths, lint.Options{
				Stdin:    a.In,
				NodeName: node,
				NoSuffix: noSuffix,
				Policy:   policy,
			})
			if err != nil {
				return err
			}
			return findings.Print(a.Streams, output == "json")
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "text", "output format: text or json")
	c.Flags().StringVar(&node, "node-name", "", "node name (default: the hostname, in lower case)")
	flags.AddNoNodeSuffix(c.Flags(), &noSuffix)
	flags.AddPodSecurity(c.Flags(), &podSecurity)
	return c
}
