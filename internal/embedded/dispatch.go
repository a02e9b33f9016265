package embedded

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task/plugin" // the shim's task service
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"

	"podrun.io/podrun/internal/secretenv"
)

const (
	shimPrefix = "containerd-shim-"
	shimPlugin = "io.containerd.ttrpc.v1.task"
)

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
	keepPlugins(func(uri string) bool { return uri == shimPlugin })
	// The shim defines its flags on the process's flag set, where a test binary has its own.
	flag.CommandLine = flag.NewFlagSet(os.Args[0], flag.ExitOnError)
	defer ownSocket()()
	shim.RunShim(ctx, manager.NewShimManager("io.containerd.runc.v2"))
	return 0, true
}

// keepPlugins removes every registered containerd plugin that keep does not accept. The daemon and
// the shim share one registry, and each fails if it contains the other's plugins.
func keepPlugins(keep func(uri string) bool) {
	all := registry.Graph(func(*plugin.Registration) bool { return false })
	registry.Reset()
	for _, r := range all {
		if keep(r.URI()) {
			registry.Register(&r)
		}
	}
}
