// Command driver is the CSI driver of the tests, as a program of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"podrun.io/podrun/internal/test/testcsi"
)

func main() {
	d := &testcsi.Driver{}
	flag.StringVar(&d.Name, "name", "inline.csi.example.com", "the driver's name")
	flag.StringVar(&d.Node, "node", "this-node", "its name for the machine")
	flag.StringVar(&d.Dir, "dir", "", "directory of its volumes and socket")
	flag.StringVar(&d.Registry, "registry", "", "directory where it registers")
	flag.BoolVar(&d.Stages, "stages", false, "stage volumes that are not inline")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := d.Serve(ctx); !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
