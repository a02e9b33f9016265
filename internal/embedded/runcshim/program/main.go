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
	if runcshim.Serves(os.Args[1:]) {
		limit()
	}
	os.Exit(runcshim.Main(context.Background(), os.Args[1:]))
}

// limit starts this process anew with its number of processors, unless it has that. If it cannot be
// started, it works as it is, too.
func limit() {
	if os.Getenv("GOMAXPROCS") != processors {
		if program, err := os.Executable(); err == nil && os.Setenv("GOMAXPROCS", processors) == nil {
			_ = unix.Exec(program, os.Args, os.Environ())
		}
	}
	// Go has read it. runc and hooks inherit what containerd gives to its shims' children.
	_ = os.Setenv("GOMAXPROCS", "4")
}
