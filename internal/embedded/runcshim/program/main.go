// Command program is the program containerd-shim-runc-v2 on its own: package runcshim and nothing else
// of podrun. make build puts it, compressed, into podrun, because each pod has a process of it: all of
// podrun's packages, initialised in each of them, would cost more than the shim itself. It knows
// nothing that package runcshim does not know.
package main

import (
	"context"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/embedded/runcshim"
)

// processors is how many threads may run Go code at once: a shim mostly waits. Each one more has free
// memory of its own, and changing the number later leaves records of that; so the process starts anew
// with it.
const processors = "1"

func main() {
	runtime.MemProfileRate = 0 // nobody reads the profile
	if runcshim.Serves(os.Args[1:]) && os.Getenv("GOMAXPROCS") != processors {
		again()
	}
	if runcshim.Serves(os.Args[1:]) {
		// Go has read it. runc and hooks inherit what containerd gives to its shims' children.
		_ = os.Setenv("GOMAXPROCS", "4")
	}
	os.Exit(runcshim.Main(context.Background(), os.Args[1:]))
}

// again starts this process anew. It returns if that is not possible; the process works as it is, too.
func again() {
	program, err := os.Executable()
	if err != nil || os.Setenv("GOMAXPROCS", processors) != nil {
		return
	}
	_ = unix.Exec(program, os.Args, os.Environ())
}
