package cmd

import (
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli"
)

// usage marks err as a usage error of command c: exit code 2, and a hint to read the help of c.
func usage(c *cobra.Command, err error) error {
	return &cli.Error{Code: cli.ExitUsage, Err: err, Hint: "see " + c.CommandPath() + " --help"}
}

// arguments turns the errors of check into usage errors.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return usage(c, err)
		}
		return nil
	}
}

// many is the maximum for argCount that allows any number of arguments.
const many = math.MaxInt

// argCount returns a check that a command has at least least and at most most arguments.
func argCount(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		synopsis := strings.TrimSuffix(c.CommandPath(), c.Name()) + c.Use
		switch {
		case len(args) < least:
			return usage(c, fmt.Errorf("an argument is missing: %s", synopsis))
		case len(args) <= most:
			return nil
		case c.HasSubCommands():
			return usage(c, fmt.Errorf("unknown command %q for %q", args[most], c.CommandPath()))
		case most == 0:
			return usage(c, fmt.Errorf("unexpected argument %q: %s takes none", args[0], c.CommandPath()))
		default:
			return usage(c, fmt.Errorf("unexpected argument %q: %s", args[most], synopsis))
		}
	}
}
