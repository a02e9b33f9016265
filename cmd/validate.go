package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/agent/directories"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/lint"
)

func validateCommand(a *app) *cobra.Command {
	var output string
	var loading flags.Loading
	c := &cobra.Command{
		Use:     "validate FILE|DIR|-... | -f FILE",
		Short:   "Check manifests as serve would",
		Long:    lint.ValidateHelp,
		Example: lint.ValidateExample,
		Args:    argCount(1, unlimited),
		RunE: func(c *cobra.Command, paths []string) error {
			if output != "text" && output != "json" {
				return usage(c, fmt.Errorf("-o %q: must be text or json", output))
			}
			if directories.Check(a.Dirs().Modes()) == nil { // else another user could say what serve has
				cli.WarnOf(a.ErrOut, "this may differ from what serve does", flags.AdoptServe(c.Flags(), a.Dirs()))
			}
			o, err := loading.Options()
			if err != nil {
				return usage(c, err)
			}
			findings, err := lint.Check(c.Context(), append(paths, loading.Files...), lintOptions(a, o))
			if err != nil {
				return err
			}
			return findings.Print(a.Streams, output == "json")
		},
	}
	loading.AddToValidate(c.Flags())
	c.Flags().StringVarP(&output, "output", "o", "text", "output format: text or json")
	return c
}

func lintOptions(a *app, o flags.LoadingOptions) lint.Options {
	return lint.Options{Stdin: a.In, NodeName: o.NodeName, NoSuffix: o.NoSuffix, Policy: o.Policy, Rules: o.Rules,
		StrictPermissions: o.StrictPermissions, Served: flags.Served(a.Dirs())}
}

func convertCommand(a *app) *cobra.Command {
	var loading flags.Loading
	c := &cobra.Command{
		Args: argCount(1, unlimited), Use: "convert FILE|-... | -f FILE", Short: "Make manifests of other documents", Long: lint.ConvertHelp,
		Example: "  kubectl get deployment web -o yaml | podrun convert - > /etc/pods/web.yaml\n  podrun convert docker-compose.yaml > /etc/pods/app.yaml",
		RunE: func(c *cobra.Command, paths []string) error {
			o, err := loading.Options()
			if err != nil {
				return usage(c, err)
			}
			return lint.Convert(c.Context(), append(paths, loading.Files...), a.Streams, lintOptions(a, o))
		},
	}
	loading.AddWithFiles(c.Flags())
	return c
}
