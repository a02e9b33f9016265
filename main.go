// Command podrun keeps Kubernetes' pods running on one machine, without Kubernetes.
package main

import (
	"context"
	"os"

	"podrun.io/podrun/cmd"
)

func main() {
	os.Exit(cmd.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
