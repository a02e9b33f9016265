package flags

import (
	"io"
	"slices"

	"podrun.io/podrun/internal/agent/connection"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/cli"
)

// WarnOfRoot warns if the pods of the run directory have another root directory than that of dirs, so that what a
// command reads there is not about them. Commands that create or remove pods fail by themselves then.
func WarnOfRoot(w io.Writer, command string, dirs layout.Dirs) {
	other := connection.OtherRoot(dirs)
	if other == "" || slices.Contains([]string{"serve", "once", "down"}, command) {
		return
	}
	cli.Warnf(w, "the pods of %s belong to the root directory %s, not to %s: use --root-dir %[2]s, or set PODRUN_ROOT_DIR",
		dirs.Run, other, dirs.Root)
}
