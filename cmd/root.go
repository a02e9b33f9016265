// Package cmd implements the command line of podrun with cobra. Each command has a file, which
// defines the flags, turns them into options, makes one call to another package and prints the
// result. The work is done by the packages below internal/cli and by internal/agent. Main turns the
// error of a command into the exit code: see package cli. complete.go has the completion of
// arguments. No other package of podrun imports cobra.
//
// Standard output is for data, standard error for messages to the user. Begin reading at Main;
// (*app).commands lists all commands.
package cmd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/agent/directories"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/names"
	"podrun.io/podrun/internal/cli/version"
	"podrun.io/podrun/internal/embedded"
	"podrun.io/podrun/internal/sys"
)

// app is the state that all commands share: the standard streams, the logger, the signals received
// and the global flags.
type app struct {
	cli.Streams
	// log is nil until prepare has run, which is before the command runs.
	log *slog.Logger
	// signals are nil unless Main created the app.
	signals *cli.Signals
	// reportFailure writes the error of the command to its report file, if it has one and nothing has
	// been written to it yet. It is nil if no command writes a report.
	reportFailure func(err error)
	flags.Global
}

// Main runs the command line args, which do not contain the program's name, and returns the exit
// code. SIGINT, SIGTERM and, unless it is ignored, SIGHUP stop the command gracefully.
//
// If the process was started as containerd's shim or as the stand-in for runc, Main runs that and
// no command. See embedded.Dispatch.
func Main(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	if code, is := embedded.Dispatch(ctx, os.Args); is {
		return code
	}
	defer sys.EndPrograms()
	ctx, signals, stop := cli.HandleSignals(ctx)
	defer stop()
	a := &app{Streams: cli.Streams{In: in, Out: out, ErrOut: errOut}, signals: signals}
	root := a.root()
	checkHelp(root)
	root.SetArgs(args)
	c, err := root.ExecuteContextC(ctx)
	if err != nil && a.reportFailure != nil {
		a.reportFailure(err)
	}
	return a.exit(names.Meant(a.Dirs(), c.CommandPath(), err))
}

// exit prints the error of the command and returns the exit code.
func (a *app) exit(err error) int {
	if why := a.NotDirectory(err); why != nil {
		err = &cli.Error{Code: cli.ExitUsage, Err: why}
	}
	return cli.Exit(a.ErrOut, err, a.signals.ExitCode())
}

// checkHelp makes help for an unknown command an error. By default, cobra prints the help of
// another command.
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

// Tree returns the root command with all commands, for generators of documentation.
func Tree() *cobra.Command {
	a := &app{Streams: cli.Streams{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard}}
	return a.root()
}

const (
	groupRun     = "run"
	groupInspect = "inspect"
	groupOther   = "other"
)

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "podrun COMMAND",
		Short: "Run Kubernetes pods on one machine, without Kubernetes",
		Long: "podrun keeps the pods of a directory of Kubernetes Pod manifests running on one machine. It uses\n" +
			"the machine's containerd if there is one, else its own.",
		Example: "  # keep the pods of a machine running\n  podrun serve --manifests /etc/pods\n\n" +
			"  # run a job and exit with its result\n  podrun once --manifests job.yaml\n\n" +
			"  # list the pods\n  podrun get pods",
		Args:              argCount(0, 0),
		Version:           version.Built().Version,
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: a.prepare,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.ErrOut)
	root.SetUsageTemplate(cli.UsageTemplate)
	root.SetFlagErrorFunc(flagError)
	root.SetVersionTemplate("podrun {{.Version}}\n")
	a.Global.Add(root.PersistentFlags())
	root.AddGroup(&cobra.Group{ID: groupRun, Title: "Run pods:"},
		&cobra.Group{ID: groupInspect, Title: "Inspect and access pods:"},
		&cobra.Group{ID: groupOther, Title: "Other commands:"})
	root.SetHelpCommandGroupID(groupOther)
	a.commands(root)
	return root
}

// commands adds all commands to root, each in its group of the help.
func (a *app) commands(root *cobra.Command) {
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupRun, serveCommand(a), onceCommand(a), restartCommand(a), undoCommand(a), createCommand(a), downCommand(a),
		deleteCommand(a))
	add(groupInspect,
		getCommand(a),
		psCommand(a),
		describeCommand(a),
		eventsCommand(a),
		logsCommand(a),
		execCommand(a),
		attachCommand(a),
		portForwardCommand(a),
		cpCommand(a),
		topCommand(a),
		historyCommand(a),
		timelineCommand(a),
		waitCommand(a))
	add(groupOther,
		validateCommand(a),
		convertCommand(a),
		diffCommand(a),
		imagesCommand(a),
		volumesCommand(a),
		versionCommand(a),
		completionCommand(a),
		containerdCommand(a))
}

// variables returns the environment variables that set flags of c and of the commands below it.
func variables(c *cobra.Command) []string {
	all := append(flags.Variables(c.Flags()), flags.Variables(c.PersistentFlags())...)
	for _, sub := range c.Commands() {
		all = append(all, variables(sub)...)
	}
	return all
}

// annotationQuiet marks commands that print enough about their work themselves: the default of
// --log-level is warn for them.
const annotationQuiet = "podrun.io/quiet"

// withoutDirectories are the commands that do nothing in podrun's directories.
var withoutDirectories = map[string]bool{
	"podrun": true, "help": true, "completion": true, "validate": true, "version": true,
	cobra.ShellCompRequestCmd: true, cobra.ShellCompNoDescRequestCmd: true,
}

// prepare runs before every command. It completes and checks the global flags, creates the logger,
// and refuses directories that another user could replace.
func (a *app) prepare(c *cobra.Command, _ []string) error {
	if err := a.Global.Complete(c.Flags(), c.Annotations[annotationQuiet] != ""); err != nil {
		return usage(c, err)
	}
	a.log = slog.New(a.LogHandler(a.ErrOut))
	flags.RedirectStandardLog(a.log)
	if withoutDirectories[c.Name()] {
		return nil
	}
	if err := directories.Check(a.Dirs().Modes()); err != nil {
		return &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	cli.WarnIf(a.ErrOut, flags.OtherRoot(c.Name(), a.Dirs()))
	return nil
}
