// Package version finds out and prints the versions of podrun and of the containerd in use.
//
// Begin reading at Built.
package version

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"podrun.io/podrun/internal/agent/connection"
	"podrun.io/podrun/internal/cli/printers"
)

// Versions are the versions of podrun and containerd. They are printed as they are in JSON.
type Versions struct {
	Version string `json:"version"`
	// Commit is empty if the build had no information about it.
	Commit string `json:"commit,omitempty"`
	// Modified is true if the build had uncommitted changes.
	Modified         bool   `json:"modified"`
	Go               string `json:"go"`
	Platform         string `json:"platform"`
	ContainerdClient string `json:"containerdClient"`
	// ContainerdServer is empty if no containerd is running, or none that the caller may connect to.
	ContainerdServer  string `json:"containerdServer,omitempty"`
	ContainerdAddress string `json:"containerdAddress,omitempty"`
}

// commit is set by the linker if Go stamps no commit into the binary, as in a git worktree. It is
// the hash, followed by dirtySuffix if there were uncommitted changes.
var commit string

const dirtySuffix = "-dirty"

// Built returns the versions that are recorded in the binary.
func Built() Versions {
	v := Versions{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
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
func (v *Versions) stamp(settings []debug.BuildSetting, linked string) {
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

// serverTimeout is the timeout for the version request to containerd, which may hang.
const serverTimeout = 3 * time.Second

// AskServer sets the version of the containerd that o selects, if it is running.
func (v *Versions) AskServer(ctx context.Context, o connection.Options) {
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	o.Running = true
	conn, err := connection.Open(ctx, o)
	if err != nil {
		return
	}
	defer conn.Close()
	if v.ContainerdServer, err = conn.Driver.ServerVersion(ctx); err == nil {
		v.ContainerdAddress = conn.Address
	}
}

// Print prints the versions as a table, or as JSON.
func (v Versions) Print(out io.Writer, asJSON bool) error {
	if asJSON {
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(out, string(b))
		return err
	}
	return printers.Rows(out, []string{"podrun:", v.Version}, []string{"commit:", v.commitText()},
		[]string{"go:", v.Go + " " + v.Platform}, []string{"containerd client:", v.ContainerdClient},
		[]string{"containerd server:", v.serverText(os.Geteuid() == 0)})
}

// serverText returns the containerd for the table. Others than root may not see the one that runs.
func (v Versions) serverText(root bool) string {
	switch {
	case v.ContainerdServer != "":
		return v.ContainerdServer + " at " + v.ContainerdAddress
	case !root:
		return "unknown: run it as root"
	}
	return "none running"
}

// commitText returns the commit for the table.
func (v Versions) commitText() string {
	if v.Modified {
		return v.Commit + " (modified)"
	}
	return printers.OrNone(v.Commit)
}
