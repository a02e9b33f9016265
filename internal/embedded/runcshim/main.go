// Package runcshim is the program containerd-shim-runc-v2, which containerd starts for each pod:
// the parent of the pod's containers. Each pod has one for as long as it runs, so what it costs
// while nothing happens counts.
//
// The task service, which runs runc, is containerd's. This package serves it as containerd's own
// program does, except that nothing happens in an idle shim: containerd's collects garbage every 30
// seconds. What is no serving shim (one that starts another, or removes what a killed one left) is
// containerd's program altogether. The program is podrun itself, under the shim's name, or the small
// one in the directory program, which make build puts into podrun.
//
// The package does not know pods, and it is not the client of a shim. Start reading at Main.
package runcshim

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	"github.com/containerd/containerd/v2/pkg/shim"
)

// name is the runtime's name in containerd.
const name = "io.containerd.runc.v2"

// Main runs the shim that the arguments, without the program's name, ask for. It returns the exit
// code. The shim reads the process's own arguments and standard streams, and exits the process
// itself on some errors.
func Main(ctx context.Context, args []string) int {
	defer ownSocket()()
	if namespace, serves := serving(args); serves {
		if err := serve(ctx, namespace); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			return 1
		}
		return 0
	}
	// containerd's program defines its flags on the process's flag set, where a test binary has its own.
	flag.CommandLine = flag.NewFlagSet(os.Args[0], flag.ExitOnError)
	shim.RunShim(ctx, manager.NewShimManager(name))
	return 0
}

// Serves reports whether the arguments are those of a shim that serves containers: a process that stays
// as long as they do. Others do one thing and end.
func Serves(args []string) bool {
	_, serves := serving(args)
	return serves
}

// serving reports whether the arguments are those of a shim that serves containers, and of which
// namespace. With others, such as -debug, containerd's program serves them.
func serving(args []string) (namespace string, serves bool) {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&namespace, "namespace", "", "")
	id := flags.String("id", "", "")
	flags.String("address", "", "")
	if err := flags.Parse(slices.Clone(args)); err != nil {
		return "", false
	}
	return namespace, namespace != "" && *id != "" && flags.NArg() == 0
}
