package cmd

import (
	"time"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/once"
)

// onceFlags are the flags of once.
type onceFlags struct {
	run       flags.Run
	options   once.Options
	logGroups string
}

func onceCommand(a *app) *cobra.Command {
	f := &onceFlags{options: once.Options{Report: &once.ReportFile{Began: time.Now()}}}
	o := &f.options
	c := &cobra.Command{
		Use:         "once [FILE|DIR|-...]",
		Annotations: map[string]string{annotationQuiet: "yes"},
		Short:       "Run the pods of all manifests once and exit with their result",
		Long:        once.Help,
		Example:     once.Example,
		Args:        manifestFiles,
		RunE:        func(c *cobra.Command, _ []string) error { return runOnce(a, c, f) },
	}
	f.run.Add(c.Flags())
	c.Flags().DurationVar(&o.Timeout, "timeout", 0, "maximum time to wait for the results (default: no limit)")
	c.Flags().DurationVar(&o.CleanupTimeout, "cleanup-timeout", once.DefaultCleanupTimeout,
		"maximum time that the clean-up may delay the exit, not counting grace periods")
	c.Flags().DurationVar(&o.Stable, "service-stable", once.DefaultStable,
		"time for which a service must stay ready, without a restart")
	c.Flags().DurationVar(&o.PullTimeout, "pull-timeout", once.DefaultPullTimeout,
		"maximum time for which pulls of an image may fail or make no progress")
	c.Flags().StringVar(&o.Report.Path, "report", "",
		"file for a report in JUnit XML format, written however once ends")
	c.Flags().StringVar(&o.Timeline, "timeline", "", "file for what the run spent its time on: .svg or .json")
	c.Flags().StringVar(&o.Logs, "logs", "",
		"logs to print: at the end all, failed (of containers that failed or were not done) or none, or stream\n"+
			"each line at once (default: stream on a terminal or if CI is set, else failed)")
	c.Flags().StringVar(&f.logGroups, "log-groups", "",
		"fold the logs of containers in the log of a CI service: github, gitlab or none (default: by GITHUB_ACTIONS\n"+
			"and GITLAB_CI)")
	c.Flags().StringVar(&o.ExitCodeFrom, "exit-code-from", "",
		"POD or POD/CONTAINER whose exit code is that of once if it fails; also JOB, TYPE/NAME or NAMESPACE/NAME")
	c.Flags().BoolVar(&o.Remove, "rm", false, "stop and remove all pods when done")
	a.reportFailure = func(err error) {
		if err := o.Report.Failure(err); err != nil {
			cli.Warnf(a.ErrOut, "%v", err)
		}
	}
	return c
}

func runOnce(a *app, c *cobra.Command, f *onceFlags) error {
	o := a.agentOptions()
	if err := f.run.Options(c.Flags(), &o); err != nil {
		return usage(c, err)
	}
	cli.WarnOfVariables(a.log, variables(c.Root()))
	run := f.options
	run.Command, run.Streams, run.Signals, run.LogHandler = c.CommandPath(), &a.Streams, a.signals, a.LogHandler
	run.Agent = o
	if err := run.Check(f.logGroups); err != nil {
		return usage(c, err)
	}
	if err := cli.NeedRoot(c.CommandPath()); err != nil {
		return err
	}
	if err := cli.NeedCapabilities(c.CommandPath()); err != nil {
		return err
	}
	if err := cli.NeedCgroups(c.CommandPath(), o.Connect.CgroupDriver); err != nil {
		return err
	}
	if cli.TerminalOf(a.ErrOut) == nil {
		a.ErrOut = run.Groups.Guard(a.ErrOut)
	}
	return once.Run(c.Context(), run)
}
