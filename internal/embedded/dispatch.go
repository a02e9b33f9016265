package embedded

import (
	"context"
	"path/filepath"
	"strings"

	"podrun.io/podrun/internal/embedded/runcshim"
	"podrun.io/podrun/internal/secretenv"
)

const shimPrefix = "containerd-shim-"

// Dispatch runs the shim or the stand-in for runc if the binary was called by the name of one of
// them, and reports whether it was. It must be called first in main, and in every TestMain whose
// test binary starts an embedded containerd. The shim reads the process's own arguments and
// standard streams; on an error it exits the process itself.
func Dispatch(ctx context.Context, args []string) (exit int, handled bool) {
	if exit, handled = secretenv.Dispatch(args); handled {
		return exit, true
	}
	if len(args) == 0 || !strings.HasPrefix(filepath.Base(args[0]), shimPrefix) {
		return 0, false
	}
	return runcshim.Main(ctx, args[1:]), true
}
