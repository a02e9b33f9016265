package cmd

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"podrun.io/podrun/internal/agent/result"
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
	remove         bool
}

func onceCommand(a *app) *cobra.Command {
	f := &onceFlags{report: report.File{Began: time.Now()}}
	c := &cobra.Command{
		Use:         "once [FILE|DIR|-...]",
		Annotations: map[string]string{annotationQuiet: "yes"},
		Short:       "Run the pods of all manifests once and exit with their result",
		Long: "once runs the pods, waits until each is done and exits. A pod with restartPolicy Never or\n" +
			"OnFailure is done when it has succeeded or failed. A pod with restartPolicy Always, a service, is\n" +
			"done when it has been ready for --service-stable without a restart; once leaves it running unless\n" +
			"--rm is set. A service that waits in crash back-off when all jobs have ended has failed.\n\n" +
			"A pod has one owner process at a time. If serve or another once owns one of the pods, once names\n" +
			"that process and exits before it starts anything. once takes over running pods that no process\n" +
			"owns, and runs completed pods again. Pods that once leaves running stay until serve takes them\n" +
			"over, because it has a manifest for them, or until down removes them.\n\n" +
			"Exit code: 0 every pod succeeded or is ready; 1 a pod failed; 2 bad usage, a manifest that cannot\n" +
			"be used or a pod that another process owns (nothing was started); 3 containerd out of reach; 124\n" +
			"--timeout passed; 130 interrupted, 143 by SIGTERM, 141 because the reader of the output has closed\n" +
			"it.\n\n" +
			"At --timeout, once stops and removes the pods that are not done, with their logs; at an interrupt,\n" +
			"all pods. Each pod has its grace period; what it writes until its end is printed with its log. A\n" +
			"second interrupt kills the pods, and once exits immediately. An interrupt after the results are\n" +
			"known ends the clean-up within a second, also with exit code 130 or 143.\n\n" +
			"once exits when the results are known. If the clean-up takes longer than --cleanup-timeout, not\n" +
			"counting the grace periods of pods that stop, once prints a warning that names what is left. once\n" +
			"always replaces the report, however it ends. If no pod was run, the report has the errors.\n\n" +
			"A pod with the annotation podrun.io/after starts when the pods that the annotation names have\n" +
			"succeeded or, with restartPolicy Always, are ready. If one of them fails, the pod is not started.",
		Example: "  # run a job from standard input and print its whole log\n" +
			"  podrun once - --logs all <job.yaml\n\n" +
			"  # in CI: run for at most ten minutes, write a JUnit report and leave nothing behind\n" +
			"  podrun once ci/ --timeout 10m --report result.xml --rm",
		Args: manifestFiles,
		RunE: func(c *cobra.Command, _ []string) error { return runOnce(a, c, f) },
	}
	f.run.Add(c.Flags())
	c.Flags().DurationVar(&f.timeout, "timeout", 0, "maximum time to wait for the results (default: no limit)")
	c.Flags().DurationVar(&f.cleanupTimeout, "cleanup-timeout", result.DefaultCleanupTimeout,
		"maximum time that the clean-up may delay the exit, not counting grace periods")
	c.Flags().DurationVar(&f.stable, "service-stable", result.DefaultStable,
		"time for which a service must stay ready, without a restart")
	c.Flags().DurationVar(&f.pullTimeout, "pull-timeout", result.DefaultPullTimeout,
		"maximum time for which pulls of an image may fail or make no progress")
	c.Flags().StringVar(&f.report.Path, "report", "",
		"file for a report in JUnit XML format, written however once ends")
	c.Flags().StringVar(&f.logs, "logs", "",
		"logs to print: at the end all, failed (of containers that failed or were not done) or none, or stream\n"+
			"each line at once (default: stream on a terminal or if CI is set, else failed)")
	c.Flags().StringVar(&f.logGroups, "log-groups", "",
		"fold the logs of containers in the log of a CI service: github, gitlab or none (default: by GITHUB_ACTIONS\n"+
			"and GITLAB_CI)")
	c.Flags().StringVar(&f.exitCodeFrom, "exit-code-from", "",
		"POD or POD/CONTAINER whose exit code is that of once if it fails")
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
	return nil
}

// defaultLogs returns the default of --logs. ci is the variable CI, which CI services set.
func defaultLogs(terminal bool, ci string) string {
	if terminal || ci != "" && ci != "0" && ci != "false" {
		return "stream"
	}
	return "failed"
}

func runOnce(a *app, c *cobra.Command, f *onceFlags) error {
	o := a.agentOptions()
	if err := f.run.Options(c.Flags(), &o); err != nil {
		return usage(c, err)
	}
	if f.logs == "" {
		f.logs = defaultLogs(cli.TerminalOf(a.Out) != nil, os.Getenv("CI"))
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
		ExitCodeFrom: f.exitCodeFrom, Remove: f.remove,
	})
}
