package cmd

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"podrun.io/podrun/internal/cli/flags"
)

// ofACall are the flags that no environment variable sets, in any command. They say what one call does
// or prints: a variable that is set for serve on a machine must not make each down --all or each
// images rm --force.
var ofACall = []string{
	"address", "all", "all-containers", "all-namespaces", "cleanup-timeout", "container", "detach-keys",
	"exit-code-from", "filename", "follow", "for", "force", "from", "grace-period", "idle-grace", "input", "interval", "log-groups",
	"logs", "namespace", "no-headers", "no-preserve", "no-sync", "output", "prefix", "previous", "pull-timeout", "report",
	"rm", "selector", "service-stable", "show-labels", "since", "since-time", "sort-by", "stdin", "stop-pods", "tail",
	"timeline", "timeout", "timestamps", "tty", "types", "watch",
}

// TestEnvironmentOfFlags: every other flag of every command honours its environment variable.
func TestEnvironmentOfFlags(t *testing.T) {
	used := map[string]bool{}
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		c.Flags().AddFlagSet(c.InheritedFlags())
		c.Flags().VisitAll(func(f *pflag.Flag) {
			used[f.Name] = true
			name := "PODRUN_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
			alone, one := pflag.NewFlagSet("", pflag.ContinueOnError), *f // global flags are in all commands
			one.Changed = false
			alone.AddFlag(&one)
			t.Setenv(name, "!") // not a boolean, a number or a duration either
			honoured := flags.SetFromEnvironment(alone) != nil || one.Changed
			t.Setenv(name, "")
			if want := !slices.Contains(ofACall, f.Name); honoured != want {
				t.Errorf("%s --%s honours %s: %v, want %v", c.CommandPath(), f.Name, name, honoured, want)
			}
		})
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(Tree())
	for _, name := range ofACall {
		if !used[name] {
			t.Errorf("no command has --%s", name)
		}
	}
}
