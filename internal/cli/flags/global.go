package flags

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"podrun.io/podrun/internal/agent/connection"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys/excerpt"
)

// Global are the flags that all commands have.
type Global struct {
	ContainerdAddress, ContainerdNamespace string
	Snapshotter, Runtime                   string
	RootDir, RunDir, LogDir, LogLinksDir   string
	LogLevel, LogFormat                    string
}

// Add adds the flags to f.
func (g *Global) Add(f *pflag.FlagSet) {
	f.StringVar(&g.ContainerdAddress, "containerd-address", "",
		"containerd socket, or embedded for podrun's own containerd (default: $CONTAINERD_ADDRESS,\n"+
			"else podrun's own if it runs, else /run/containerd/containerd.sock if it exists, else podrun's own)")
	f.StringVar(&g.ContainerdNamespace, "containerd-namespace", "podrun", "containerd namespace")
	f.StringVar(&g.Snapshotter, "snapshotter", "",
		"containerd snapshotter (default: the best one that works on this machine)")
	f.StringVar(&g.Runtime, "runtime", "io.containerd.runc.v2", "containerd runtime")
	f.StringVar(&g.RootDir, "root-dir", "/var/lib/podrun", "directory for state that must survive a reboot")
	f.StringVar(&g.RunDir, "run-dir", "/run/podrun", "directory for state that need not survive a reboot")
	f.StringVar(&g.LogDir, "log-dir", "/var/log/pods", "directory for container logs")
	f.StringVar(&g.LogLinksDir, "log-links-dir", "/var/log/containers",
		"directory for links to container logs, which log collectors read, named as the kubelet names them (\"\": none)")
	f.StringVar(&g.LogLevel, "log-level", "info", "minimum log level: debug, info, warn or error")
	f.StringVar(&g.LogFormat, "log-format", "text", "log format: text or json")
	FromEnvironment(f)
}

// Dirs returns the directories that the flags name.
func (g *Global) Dirs() layout.Dirs {
	return layout.Dirs{Root: g.RootDir, Run: g.RunDir, Log: g.LogDir, LogLinks: g.LogLinksDir}
}

// Connection returns the options to connect to containerd that the flags and the environment give.
func (g *Global) Connection(log *slog.Logger) connection.Options {
	return connection.Options{
		Address: g.ContainerdAddress, Environment: os.Getenv("CONTAINERD_ADDRESS"),
		Namespace: g.ContainerdNamespace, Snapshotter: g.Snapshotter, RuntimeName: g.Runtime,
		Dirs: g.Dirs(), Log: log,
	}
}

// Complete sets the flags of a command from environment variables, makes the directories absolute
// paths and checks the flags of the log. quiet is true for commands that print enough about their
// work themselves: the default of --log-level is warn for them.
func (g *Global) Complete(f *pflag.FlagSet, quiet bool) error {
	if err := SetFromEnvironment(f); err != nil {
		return err
	}
	// These paths end up in the specs of containers and in other processes, so they must not depend
	// on the working directory of this process.
	for _, d := range g.directories() {
		if *d.path == "" && d.path == &g.LogLinksDir {
			continue // no links
		}
		var err error
		if *d.path, err = directory(*d.path); err != nil {
			return fmt.Errorf("--%s %w", d.name, err)
		}
	}
	if n := f.Lookup("namespace"); n != nil {
		if n.Value.String() == "" { // as with kubectl
			_ = n.Value.Set(n.DefValue)
		}
		if why := validation.IsDNS1123Label(n.Value.String()); len(why) > 0 {
			return fmt.Errorf("--namespace %q: must be at most 63 lowercase letters, digits and dashes", n.Value)
		}
	}
	if err := g.checkContainerd(); err != nil {
		return err
	}
	if quiet && !f.Changed("log-level") {
		g.LogLevel = "warn"
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(g.LogLevel)); err != nil {
		return fmt.Errorf("--log-level %q: must be debug, info, warn or error", g.LogLevel)
	}
	if g.LogFormat != "text" && g.LogFormat != "json" {
		return fmt.Errorf("--log-format %q: must be text or json", g.LogFormat)
	}
	return nil
}

// directory returns the absolute path of a directory, which need not exist.
func directory(path string) (string, error) {
	if path == "" {
		return "", errors.New(`"": must be the path of a directory`)
	}
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return "", fmt.Errorf("%s: is no directory", path)
	}
	return filepath.Abs(path)
}

// checkContainerd checks the flags that say which containerd is used, without connecting to it.
func (g *Global) checkContainerd() error {
	if address := g.ContainerdAddress; address != "" && address != connection.Embedded &&
		!filepath.IsAbs(strings.TrimPrefix(address, "unix://")) {
		return fmt.Errorf("--containerd-address %q: must be the absolute path of a socket, or %s",
			address, connection.Embedded)
	}
	if !identifier.MatchString(g.ContainerdNamespace) || len(g.ContainerdNamespace) > mostIdentifier {
		return fmt.Errorf("--containerd-namespace %q: must be letters and digits, with single dots, dashes or "+
			"underscores between them, at most %d characters", g.ContainerdNamespace, mostIdentifier)
	}
	return nil
}

// identifier is what containerd accepts as the name of a namespace.
var identifier = regexp.MustCompile(`^[A-Za-z0-9]+([._-][A-Za-z0-9]+)*$`)

// mostIdentifier is the maximum length of an identifier, containerd's.
const mostIdentifier = 76

// mostValue is how many bytes of a message or of another value are logged. Many are errors with text
// of servers, images and containers; no such text may fill the disk or the memory.
const mostValue = 4 << 10

func cutValue(_ []string, a slog.Attr) slog.Attr {
	if kind := a.Value.Kind(); kind == slog.KindString || kind == slog.KindAny {
		if text := a.Value.String(); len(text) > mostValue {
			a.Value = slog.StringValue(excerpt.Of(text, mostValue))
		}
	}
	return a
}

// LogHandler returns a handler that writes the log to w in the format and from the level that the
// flags name. Long values are cut. Lines for systemd's journal have a priority and no time. Complete
// must have checked the flags.
func (g *Global) LogHandler(w io.Writer) slog.Handler {
	o := slog.HandlerOptions{ReplaceAttr: cutValue}
	var level slog.Level
	_ = level.UnmarshalText([]byte(g.LogLevel))
	o.Level = level
	create := func(w io.Writer) slog.Handler {
		if g.LogFormat == "json" {
			return slog.NewJSONHandler(w, &o)
		}
		return slog.NewTextHandler(w, &o)
	}
	if toJournal(w, os.Getenv("JOURNAL_STREAM")) {
		o.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
				return slog.Attr{}
			}
			return cutValue(groups, a)
		}
		return newJournalHandler(w, create)
	}
	return create(w)
}
