// Package cmd is the command line: one file per command, each from flags to options, one call, print,
// exit code. It speaks to people and decides nothing about pods. No other room imports cobra.
package cmd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/embedded"
	"podrun.io/podrun/internal/layout"
)

// app is what all commands share.
type app struct {
	in          io.Reader
	out, errOut io.Writer
	// log is there when a command runs.
	log *slog.Logger
	// hurry is closed when a person who has asked for the end asks again.
	hurry chan struct{}
	// caught is the first signal that asked for the end; 0: none has. Nil outside Main.
	caught *atomic.Int32
	// cancel ends the context of the command that runs.
	cancel context.CancelFunc
	// unreported writes a command's report of its own failure, if it is to write one and has not; nil: none is.
	unreported func(err error)
	globals
}

// globals are the flags of all commands.
type globals struct {
	containerdAddress, containerdNamespace string
	snapshotter, runtime                   string
	rootDir, runDir, logDir                string
	logLevel, logFormat                    string
}

func (g globals) dirs() layout.Dirs {
	return layout.Dirs{Root: g.rootDir, Run: g.runDir, Log: g.logDir}
}

// Main runs the command line args, without the program's name, and returns its exit code. It ends early,
// gracefully, at SIGINT and SIGTERM. A process that was started as containerd's shim is that and no more.
func Main(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	if code, is := embedded.Dispatch(ctx, os.Args); is {
		return code
	}
	defer agent.End()
	a := &app{in: in, out: out, errOut: errOut, hurry: make(chan struct{}), caught: new(atomic.Int32)}
	ctx, stop := a.heed(ctx)
	defer stop()
	root := a.root()
	checkHelp(root)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && a.unreported != nil {
		a.unreported(err)
	}
	return a.exit(err)
}

// checkHelp makes help about a command that does not exist an error; cobra's shows another's.
func checkHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() != "help" {
			continue
		}
		c.Args = func(_ *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err == nil && about.HasSubCommands() && len(rest) > 0 {
				err = fmt.Errorf("unknown command %q for %q", rest[0], about.CommandPath())
			}
			if err != nil {
				return usage(about, err)
			}
			return nil
		}
	}
}

// Tree is all commands, for those who document them.
func Tree() *cobra.Command {
	return (&app{in: strings.NewReader(""), out: io.Discard, errOut: io.Discard}).root()
}

// heed returns a context that ends at the first SIGINT or SIGTERM, or SIGHUP unless that is ignored, as under
// nohup; at the second one hurry is closed, and the third one ends the process.
func (a *app) heed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	a.cancel = cancel
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	ended := make(chan struct{})
	var heeding sync.WaitGroup
	heeding.Go(func() {
		for _, then := range []func(os.Signal){
			func(s os.Signal) {
				if number, is := s.(syscall.Signal); is {
					a.caught.Store(int32(number))
				}
				cancel()
			},
			func(os.Signal) { close(a.hurry) },
		} {
			select {
			case s := <-signals:
				then(s)
			case <-ended:
				return
			}
		}
		signal.Stop(signals)
	})
	return ctx, func() {
		signal.Stop(signals)
		close(ended)
		heeding.Wait()
		cancel()
	}
}

const (
	groupRun     = "run"
	groupInspect = "look"
	groupOther   = "other"
)

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "podrun COMMAND",
		Short: "Kubernetes' pods on one machine, without Kubernetes",
		Long: "podrun keeps the pods of a directory of Kubernetes Pod manifests running on one machine, with\n" +
			"containerd: any that is there, else its own.",
		Example: "  # keep a machine's pods running\n  podrun serve --manifests /etc/pods\n\n" +
			"  # run a job and exit with its result\n  podrun once --manifests job.yaml\n\n" +
			"  # see them\n  podrun get pods",
		Args:              argCount(0, 0),
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: a.prepare,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.errOut)
	root.SetUsageTemplate(usageTemplate)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usage(c, err) })
	a.globalFlags(root.PersistentFlags())
	root.AddGroup(&cobra.Group{ID: groupRun, Title: "Run pods:"},
		&cobra.Group{ID: groupInspect, Title: "See and reach them:"},
		&cobra.Group{ID: groupOther, Title: "Other:"})
	root.SetHelpCommandGroupID(groupOther)
	a.commands(root)
	return root
}

// commands is the list of all commands.
func (a *app) commands(root *cobra.Command) {
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupRun, a.serveCommand(), a.onceCommand(), a.downCommand())
	add(groupInspect, a.getCommand(), a.psCommand(), a.describeCommand(), a.eventsCommand(), a.logsCommand(), a.execCommand(), a.attachCommand(), a.portForwardCommand(), a.topCommand(), a.waitCommand())
	add(groupOther, a.validateCommand(), a.diffCommand(), a.imagesCommand(), a.volumesCommand(), a.versionCommand(), a.completionCommand(), a.containerdCommand())
}

func (a *app) globalFlags(f *pflag.FlagSet) {
	f.StringVar(&a.containerdAddress, "containerd-address", "", "containerd's socket, or embedded for podrun's own (default: $CONTAINERD_ADDRESS,\nelse podrun's own if it runs, else /run/containerd/containerd.sock if it exists, else podrun's own)")
	f.StringVar(&a.containerdNamespace, "containerd-namespace", "podrun", "namespace within containerd")
	f.StringVar(&a.snapshotter, "snapshotter", "", "containerd's snapshotter (default: the best that works here)")
	f.StringVar(&a.runtime, "runtime", "io.containerd.runc.v2", "containerd's runtime")
	f.StringVar(&a.rootDir, "root-dir", "/var/lib/podrun", "directory of what must survive a reboot")
	f.StringVar(&a.runDir, "run-dir", "/run/podrun", "directory of what need not")
	f.StringVar(&a.logDir, "log-dir", "/var/log/pods", "directory of the containers' logs")
	f.StringVar(&a.logLevel, "log-level", "info", "least level of podrun's own log: debug, info, warn or error")
	f.StringVar(&a.logFormat, "log-format", "text", "form of podrun's own log: text or json")
	fromEnvironment(f)
}

// annotationQuiet is on commands whose own lines tell a person enough: their log is of warnings.
const annotationQuiet = "podrun.io/quiet"

const envAnnotation = "podrun.io/env"

// fromEnvironment lets the flags of f be given by environment too: --root-dir as PODRUN_ROOT_DIR.
func fromEnvironment(f *pflag.FlagSet) {
	f.VisitAll(func(flag *pflag.Flag) {
		name := "PODRUN_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		flag.Annotations = map[string][]string{envAnnotation: {name}}
	})
}

// prepare completes the flags and makes the log, before any command runs.
func (a *app) prepare(c *cobra.Command, _ []string) error {
	var bad error
	c.Flags().VisitAll(func(flag *pflag.Flag) {
		name := flag.Annotations[envAnnotation]
		if bad != nil || flag.Changed || len(name) == 0 {
			return
		}
		if value, ok := os.LookupEnv(name[0]); ok && value != "" {
			if err := c.Flags().Set(flag.Name, value); err != nil {
				bad = usage(c, fmt.Errorf("environment variable %s: %w", name[0], err))
			}
		}
	})
	if bad != nil {
		return bad
	}
	// Paths end up in containers' specs and in other processes, so they must not depend on where this
	// one was started.
	for _, dir := range []*string{&a.rootDir, &a.runDir, &a.logDir} {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return usage(c, err)
		}
		*dir = abs
	}
	if c.Annotations[annotationQuiet] != "" && !c.Flags().Changed("log-level") {
		a.logLevel = "warn"
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.logLevel)); err != nil {
		return usage(c, fmt.Errorf("--log-level %q: must be debug, info, warn or error", a.logLevel))
	}
	if a.logFormat != "text" && a.logFormat != "json" {
		return usage(c, fmt.Errorf("--log-format %q: must be text or json", a.logFormat))
	}
	a.log = slog.New(a.logHandler(a.errOut))
	return nil
}

// logHandler writes the log to w, as the flags say. They have been checked.
func (a *app) logHandler(w io.Writer) slog.Handler {
	var o slog.HandlerOptions
	var level slog.Level
	_ = level.UnmarshalText([]byte(a.logLevel))
	o.Level = level
	if a.logFormat == "json" {
		return slog.NewJSONHandler(w, &o)
	}
	return slog.NewTextHandler(w, &o)
}

// usageTemplate is cobra's with the examples last, where a reader's eye is.
const usageTemplate = `Usage:
  {{if .Runnable}}{{.UseLine}}{{else}}{{.CommandPath}} COMMAND{{end}}{{if .HasAvailableSubCommands}}{{range $g := .Groups}}

{{$g.Title}}{{range $.Commands}}{{if and (eq .GroupID $g.ID) .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if not .Groups}}

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{end}}{{if gt (len .Aliases) 0}}

Aliases:
  {{.NameAndAliases}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableInheritedFlags}}

Flags of all commands, each also by environment (--root-dir is PODRUN_ROOT_DIR):
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}
`
