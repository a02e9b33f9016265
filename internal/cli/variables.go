package cli

import (
	"log/slog"
	"os"
	"slices"
	"strings"

	"podrun.io/podrun/internal/manifest/decode"
)

const envPrefix = "PODRUN_"

// developed begin the variables of podrun's tests and scripts, which set no flags.
var developed = []string{"PODRUN_CACHE", "PODRUN_CONTAINERD_BIN", "PODRUN_E2E", "PODRUN_TEST_", "PODRUN_VM"}

// WarnOfVariables logs a warning for each environment variable of podrun that sets no flag: a misspelt
// PODRUN_POD_SECURITY would otherwise leave a machine open without a word. known are those that set a flag of
// any command, because a file of variables may be for several commands. The values may be secrets.
func WarnOfVariables(log *slog.Logger, known []string) {
	for _, variable := range slices.Sorted(slices.Values(os.Environ())) {
		name, value, _ := strings.Cut(variable, "=")
		ours := slices.ContainsFunc(developed, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		if !strings.HasPrefix(name, envPrefix) || value == "" || ours || slices.Contains(known, name) {
			continue
		}
		message := "environment variable " + name + " sets no flag of podrun"
		if near, _ := decode.Nearest(name, known); near != "" {
			message += "; did you mean " + near + "?"
		}
		log.Warn(message)
	}
}
