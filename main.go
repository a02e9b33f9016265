// Command podrun runs Kubernetes pods on one machine, without Kubernetes. It keeps the pods of a
// directory of manifests running with containerd. Begin reading at cmd.Main.
package main

import (
	"context"
	"os"

	"podrun.io/podrun/cmd"
)

func main() {
	os.Exit(cmd.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
