package cmd

import (
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/flags"
)

// usage marks err as a usage error of command c; nil stays nil.
func usage(c *cobra.Command, err error) error { return cli.UsageError(c.CommandPath(), err) }

// manifestFiles takes the arguments of a command as values of --manifests.
func manifestFiles(c *cobra.Command, files []string) error {
	return usage(c, flags.AddFiles(c.Flags(), files))
}

// unlimited is the maximum for argCount that allows any number of arguments.
const unlimited = math.MaxInt

// argCount returns a check that a command has at least minArgs and at most maxArgs arguments.
func argCount(minArgs, maxArgs int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		synopsis := strings.TrimSuffix(c.CommandPath(), c.Name()) + c.Use
		switch {
		case len(args) < minArgs && !c.Flags().Changed("filename"):
			return usage(c, fmt.Errorf("an argument is missing: %s", synopsis))
		case len(args) <= maxArgs:
			return nil
		case c.HasSubCommands():
			return unknownCommand(c, args[maxArgs:])
		case maxArgs == 0:
			return usage(c, fmt.Errorf("unexpected argument %q: %s takes none", args[0], c.CommandPath()))
		default:
			return usage(c, fmt.Errorf("unexpected argument %q: %s", args[maxArgs], synopsis))
		}
	}
}

// unknownCommand returns the error that c has no command args[0], with what podrun has in its place.
func unknownCommand(c *cobra.Command, args []string) error {
	err := fmt.Errorf("unknown command %q for %q", args[0], c.CommandPath())
	if text := cli.InsteadIn(c.CommandPath(), args); text != "" {
		return &cli.Error{Code: cli.ExitUsage, Err: err, Hint: text}
	}
	return usage(c, fmt.Errorf("%w%s", err, similar(c, args[0])))
}

// flagError returns the usage error of a command whose flags cannot be used, with the flag that was probably meant.
func flagError(c *cobra.Command, err error) error {
	if args := c.Flags().Args(); !c.HasParent() && len(args) > 0 {
		return unknownCommand(c, args) // whose flags are not podrun's
	}
	return usage(c, flags.ValueError(cli.FlagMeant(c.Flags(), err)))
}

// similar asks whether another command of c, written like name, was meant; "" if there is none.
func similar(c *cobra.Command, name string) string {
	c.SuggestionsMinimumDistance = 2
	if all := c.SuggestionsFor(name); len(all) > 0 {
		return "; did you mean " + strings.Join(all, " or ") + "?"
	}
	return ""
}
