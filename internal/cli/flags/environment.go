package flags

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

const envAnnotation = "podrun.io/env"

// FromEnvironment lets an environment variable set each flag of f: PODRUN_ROOT_DIR sets --root-dir,
// for example. A flag on the command line takes precedence; see SetFromEnvironment. What adds flags
// that describe the machine, and not a single call, calls it: each command that has one of them then
// honours the variable. A command adds the flags of its own after those.
func FromEnvironment(f *pflag.FlagSet) {
	f.VisitAll(func(flag *pflag.Flag) {
		name := "PODRUN_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		flag.Annotations = map[string][]string{envAnnotation: {name}}
	})
}

// SetFromEnvironment sets the flags that are not on the command line from the environment.
func SetFromEnvironment(f *pflag.FlagSet) error {
	var firstErr error
	f.VisitAll(func(flag *pflag.Flag) {
		name := flag.Annotations[envAnnotation]
		if firstErr != nil || flag.Changed || len(name) == 0 {
			return
		}
		if value, ok := os.LookupEnv(name[0]); ok && value != "" {
			if err := f.Set(flag.Name, value); err != nil {
				firstErr = fmt.Errorf("environment variable %s: %w", name[0], ValueError(err))
			}
		}
	})
	return firstErr
}

// Variables returns the environment variables that set flags of f.
func Variables(f *pflag.FlagSet) []string {
	var names []string
	f.VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Annotations[envAnnotation]...) })
	return names
}
