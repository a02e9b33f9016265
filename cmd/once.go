package cmd

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/flags"
	"podrun.io/podrun/internal/cli/once"
	"podrun.io/podrun/internal/cli/report"
)

// onceFlags are the flags of once.
type onceFlags struct {
	run     flags.Run
	timeout time.Duration
	report  report.File
	// cleanupTimeout is how long the clean-up may delay the exit, not counting the grace periods of
	// pods.
	cleanupTimeout time.Duration
	stable         time.Duration
	pullTimeout    time.Duration
	logs           string
	logGroups      string
	exitCodeFrom   string
	groups         *report.Groups
	timeline       string
	remove         bool
}

func onceCommand(a *app) *cobra.Command {
	f := &onceFlags{report: report.File{Began: time.Now()}}
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
	c.Flags().DurationVar(&f.timeout, "timeout", 0, "maximum time to wait for the results (default: no limit)")
	c.Flags().DurationVar(&f.cleanupTimeout, "cleanup-timeout", once.DefaultCleanupTimeout,
		"maximum time that the clean-up may delay the exit, not counting grace periods")
	c.Flags().DurationVar(&f.stable, "service-stable", once.DefaultStable,
		"time for which a service must stay ready, without a restart")
	c.Flags().DurationVar(&f.pullTimeout, "pull-timeout", once.DefaultPullTimeout,
		"maximum time for which pulls of an image may fail or make no progress")
	c.Flags().StringVar(&f.report.Path, "report", "",
		"file for a report in JUnit XML format, written however once ends")
	c.Flags().StringVar(&f.timeline, "timeline", "", "file for what the run spent its time on: .svg or .json")
	c.Flags().StringVar(&f.logs, "logs", "",
		"logs to print: at the end all, failed (of containers that failed or were not done) or none, or stream\n"+
			"each line at once (default: stream on a terminal or if CI is set, else failed)")
	c.Flags().StringVar(&f.logGroups, "log-groups", "",
		"fold the logs of containers in the log of a CI service: github, gitlab or none (default: by GITHUB_ACTIONS\n"+
			"and GITLAB_CI)")
	c.Flags().StringVar(&f.exitCodeFrom, "exit-code-from", "",
		"POD or POD/CONTAINER whose exit code is that of once if it fails; also JOB")
	c.Flags().BoolVar(&f.remove, "rm", false, "stop and remove all pods when done")
	a.reportFailure = func(err error) {
		if err := f.report.Failure(err); err != nil {
			cli.Warnf(a.ErrOut, "%v", err)
		}
	}
	return c
}

// check returns an error for values that cannot be used, before anything runs.
func (f *onceFlags) check() error {
	switch {
	case !slices.Contains([]string{"all", "failed", "none", "stream"}, f.logs):
		return fmt.Errorf("--logs %q: must be all, failed, none or stream", f.logs)
	case f.timeout < 0:
		return fmt.Errorf("--timeout %s: must not be negative", f.timeout)
	case f.stable < 0:
		return fmt.Errorf("--service-stable %s: must not be negative", f.stable)
	case f.pullTimeout <= 0:
		return fmt.Errorf("--pull-timeout %s: must be more than 0", f.pullTimeout)
	case f.cleanupTimeout <= 0:
		return fmt.Errorf("--cleanup-timeout %s: must be more than 0", f.cleanupTimeout)
	}
	var err error
	if f.groups, err = report.NewGroups(f.logGroups, os.Getenv); err != nil {
		return err
	}
	if err := f.report.CheckPath(); err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	return once.CheckTimeline(f.timeline)
}

func runOnce(a *app, c *cobra.Command, f *onceFlags) error {
	o := a.agentOptions()
	if err := f.run.Options(c.Flags(), &o); err != nil {
		return usage(c, err)
	}
	if f.logs == "" {
		f.logs = once.DefaultLogs(cli.TerminalOf(a.Out) != nil, os.Getenv("CI"))
	}
	if err := f.check(); err != nil {
		return usage(c, err)
	}
	if err := cli.NeedRoot(c.CommandPath()); err != nil {
		return err
	}
	if err := cli.NeedCapabilities(c.CommandPath()); err != nil {
		return err
	}
	if cli.TerminalOf(a.ErrOut) == nil {
		a.ErrOut = f.groups.Guard(a.ErrOut)
	}
	return once.Run(c.Context(), once.Options{
		Command: c.CommandPath(), Streams: &a.Streams, Signals: a.signals, LogHandler: a.LogHandler,
		Agent: o, Report: &f.report, Timeout: f.timeout, CleanupTimeout: f.cleanupTimeout,
		Stable: f.stable, PullTimeout: f.pullTimeout, Logs: f.logs, Groups: f.groups,
		ExitCodeFrom: f.exitCodeFrom, Remove: f.remove, Timeline: f.timeline,
	})
}
