package cmd

import (
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli"
)

// usage marks err as a usage error of command c.
func usage(c *cobra.Command, err error) error { return cli.UsageError(c.CommandPath(), err) }

// arguments turns the errors of check into usage errors.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return usage(c, err)
		}
		return nil
	}
}

// unlimited is the maximum for argCount that allows any number of arguments.
const unlimited = math.MaxInt

// argCount returns a check that a command has at least minArgs and at most maxArgs arguments.
func argCount(minArgs, maxArgs int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		synopsis := strings.TrimSuffix(c.CommandPath(), c.Name()) + c.Use
		switch {
		case len(args) < minArgs:
			return usage(c, fmt.Errorf("an argument is missing: %s", synopsis))
		case len(args) <= maxArgs:
			return nil
		case c.HasSubCommands():
			return usage(c, fmt.Errorf("unknown command %q for %q", args[maxArgs], c.CommandPath()))
		case maxArgs == 0:
			return usage(c, fmt.Errorf("unexpected argument %q: %s takes none", args[0], c.CommandPath()))
		default:
			return usage(c, fmt.Errorf("unexpected argument %q: %s", args[maxArgs], synopsis))
		}
	}
}
