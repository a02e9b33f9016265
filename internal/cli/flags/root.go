package flags

import (
	"fmt"
	"os"
	"slices"

	"podrun.io/podrun/internal/agent/connection"
	"podrun.io/podrun/internal/checkpoint/layout"
)

// OtherRoot returns a warning if the pods of the run directory have another root directory than that of dirs, so that
// what a command reads there is not about them; else "". Commands that create or remove pods fail by themselves then.
func OtherRoot(command string, dirs layout.Dirs) string {
	other := connection.OtherRoot(dirs)
	if other == "" || slices.Contains([]string{"serve", "once", "down", "convert"}, command) {
		return ""
	}
	if pods, err := os.ReadDir((layout.Dirs{Root: other}).Pods()); err != nil || len(pods) == 0 {
		return "" // there are none any more
	}
	return fmt.Sprintf("the pods of %s belong to the root directory %s, not to %s: use --root-dir %[2]s, "+
		"or set PODRUN_ROOT_DIR", dirs.Run, other, dirs.Root)
}
