package cmd

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/agent/connection"
	"podrun.io/podrun/internal/cli/printers"
)

// versions is the JSON output of version.
type versions struct {
	Version string `json:"version"`
	// Commit is empty if the build had no information about it.
	Commit string `json:"commit,omitempty"`
	// Modified is true if the build had uncommitted changes.
	Modified         bool   `json:"modified"`
	Go               string `json:"go"`
	Platform         string `json:"platform"`
	ContainerdClient string `json:"containerdClient"`
	// ContainerdServer is empty if no containerd is running.
	ContainerdServer  string `json:"containerdServer,omitempty"`
	ContainerdAddress string `json:"containerdAddress,omitempty"`
}

func versionCommand(a *app) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of podrun and containerd",
		Long: "version prints the versions of podrun and of the containerd that podrun would use, if it is\n" +
			"running. It does not start containerd.",
		Example: "  podrun version\n  podrun version -o json",
		Args:    argCount(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return usage(c, fmt.Errorf("-o %q: must be json", output))
			}
			return runVersion(a, c.Context(), output)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "output format: json")
	return c
}

// serverTimeout is the timeout for the version request to containerd, which may hang.
const serverTimeout = 3 * time.Second

func runVersion(a *app, ctx context.Context, output string) error {
	v := built()
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	o := a.connection()
	o.Running = true
	if conn, err := connection.Open(ctx, o); err == nil {
		defer conn.Close()
		if v.ContainerdServer, err = conn.Driver.ServerVersion(ctx); err == nil {
			v.ContainerdAddress = conn.Address
		}
	}
	if output == "json" {
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(a.Out, string(b))
		return err
	}
	server := "none running"
	if v.ContainerdServer != "" {
		server = v.ContainerdServer + " at " + v.ContainerdAddress
	}
	return printers.Rows(a.Out, []string{"podrun:", v.Version}, []string{"commit:", v.commitText()},
		[]string{"go:", v.Go + " " + v.Platform}, []string{"containerd client:", v.ContainerdClient},
		[]string{"containerd server:", server})
}

// commitText returns the commit for the text output.
func (v versions) commitText() string {
	if v.Modified {
		return v.Commit + " (modified)"
	}
	return printers.OrNone(v.Commit)
}

// commit is set by the linker if Go stamps no commit into the binary, as in a git worktree. It is
// the hash, followed by dirtySuffix if there were uncommitted changes.
var commit string

const dirtySuffix = "-dirty"

// built returns the versions that are recorded in the binary.
func built() versions {
	v := versions{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.stamp(info.Settings, commit)
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, d := range info.Deps {
		if d.Path == "github.com/containerd/containerd/v2" {
			v.ContainerdClient = d.Version
		}
	}
	return v
}

// stamp sets the commit from the build settings that Go stamped or, without these, from the value
// that the linker set.
func (v *versions) stamp(settings []debug.BuildSetting, linked string) {
	v.Commit, v.Modified = strings.CutSuffix(linked, dirtySuffix)
	for _, s := range settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
}
