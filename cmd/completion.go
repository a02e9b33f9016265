package cmd

import (
	"github.com/spf13/cobra"
)

func completionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print the completion script for a shell",
		Long: "completion prints a script that lets a shell complete podrun's commands, flags, pods and\n" +
			"containers. The Debian package of podrun installs it.",
		Example: "  # bash, for all users; it needs the package bash-completion\n" +
			"  podrun completion bash >/usr/share/bash-completion/completions/podrun\n\n" +
			"  # zsh\n  podrun completion zsh >/usr/share/zsh/vendor-completions/_podrun\n\n" +
			"  # fish\n  podrun completion fish >/usr/share/fish/vendor_completions.d/podrun.fish",
		Args: func(c *cobra.Command, args []string) error {
			return usage(c, cobra.MatchAll(argCount(1, 1), cobra.OnlyValidArgs)(c, args))
		},
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(c *cobra.Command, args []string) error {
			switch root := c.Root(); args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.Out, true)
			case "zsh":
				return root.GenZshCompletion(a.Out)
			default:
				return root.GenFishCompletion(a.Out, true)
			}
		},
	}
}
