package cmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/summary"
	"podrun.io/podrun/internal/containerlog"
	"podrun.io/podrun/internal/pod"
)

// onceFlags are the flags and the state of once.
type onceFlags struct {
	run     runFlags
	timeout time.Duration
	report  report
	// cleanupTimeout is how long the clean-up may delay the exit, not counting the grace periods of
	// pods.
	cleanupTimeout time.Duration
	logs           string
	remove         bool
	// hasResults is true when the results of all pods are known.
	hasResults atomic.Bool
}

func (a *app) onceCommand() *cobra.Command {
	f := &onceFlags{report: report{began: time.Now()}}
	c := &cobra.Command{
		Use:         "once",
		Annotations: map[string]string{annotationQuiet: "yes"},
		Short:       "Run the pods of all manifests once and exit with their result",
		Long: "once runs the pods, waits until each is done and exits. A pod with restartPolicy Never or\n" +
			"OnFailure is done when it has succeeded or failed. A pod with restartPolicy Always is done when it\n" +
			"is ready; once leaves it running unless --rm is set.\n\n" +
			"A pod has one owner process at a time. If serve or another once owns one of the pods, once names\n" +
			"that process and exits before it starts anything. once takes over running pods that no process\n" +
			"owns, and runs completed pods again. Pods that once leaves running stay until serve takes them\n" +
			"over, because it has a manifest for them, or until down removes them.\n\n" +
			"Exit code: 0 every pod succeeded or is ready; 1 a pod failed; 2 bad usage, a manifest that cannot\n" +
			"be used or a pod that another process owns (nothing was started); 3 containerd out of reach; 124\n" +
			"--timeout passed; 130 interrupted, 143 by SIGTERM, 141 because the reader of the output has closed\n" +
			"it.\n\n" +
			"At --timeout, once stops and removes the pods that are not done, with their logs; at an interrupt,\n" +
			"all pods. Each pod has its grace period. A second interrupt kills the pods, and once exits\n" +
			"immediately. An interrupt after the results are known ends the clean-up within a second, also with\n" +
			"exit code 130 or 143.\n\n" +
			"once exits when the results are known. If the clean-up takes longer than --cleanup-timeout, not\n" +
			"counting the grace periods of pods that stop, once prints a warning that names what is left. once\n" +
			"always replaces the report, however it ends. If no pod was run, the report has the errors.\n\n" +
			"A pod with the annotation podrun.io/after starts when the pods that the annotation names have\n" +
			"succeeded or, with restartPolicy Always, are ready. If one of them fails, the pod is not started.",
		Example: "  # run a job from standard input and print its whole log\n" +
			"  podrun once --manifests - --logs all <job.yaml\n\n" +
			"  # in CI: run for at most ten minutes, write a JUnit report and leave nothing behind\n" +
			"  podrun once --manifests ci/ --timeout 10m --report result.xml --rm",
		Args: argCount(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return a.once(c, f) },
	}
	f.run.add(c.Flags())
	c.Flags().DurationVar(&f.timeout, "timeout", 0, "maximum time to wait for the results (default: no limit)")
	c.Flags().DurationVar(&f.cleanupTimeout, "cleanup-timeout", agent.DefaultCleanupTimeout,
		"maximum time that the clean-up may delay the exit, not counting grace periods")
	c.Flags().StringVar(&f.report.path, "report", "",
		"file for a report in JUnit XML format, written however once ends")
	c.Flags().StringVar(&f.logs, "logs", "failed",
		"logs to print at the end: all, failed (of containers that failed or were not done) or none")
	c.Flags().BoolVar(&f.remove, "rm", false, "stop and remove all pods when done")
	a.unreported = func(err error) {
		if err := f.report.failure(err); err != nil {
			fmt.Fprintf(a.ErrOut, "warning: %v\n", err)
		}
	}
	return c
}

// check returns an error for values that cannot be used, before anything runs.
func (f *onceFlags) check() error {
	switch {
	case !slices.Contains([]string{"all", "failed", "none"}, f.logs):
		return fmt.Errorf("--logs %q: must be all, failed or none", f.logs)
	case f.timeout < 0:
		return fmt.Errorf("--timeout %s: must not be negative", f.timeout)
	case f.cleanupTimeout <= 0:
		return fmt.Errorf("--cleanup-timeout %s: must be more than 0", f.cleanupTimeout)
	}
	if err := writable(f.report.path); f.report.path != "" && err != nil {
		f.report.written.Store(true) // do not try to report this error in it
		return fmt.Errorf("--report: %w", err)
	}
	return nil
}

// writable returns an error if a file can be neither written nor created.
func writable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		path = filepath.Dir(path)
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s: %w", path, syscall.EISDIR)
	}
	const mayWrite = 2
	if err := syscall.Access(path, mayWrite); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (a *app) once(c *cobra.Command, f *onceFlags) error {
	o, err := f.run.options(a, c)
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return usage(c, err)
	}
	if err := cli.NeedRoot(c.CommandPath()); err != nil {
		return err
	}
	if err := f.report.begin(); err != nil {
		return notStarted(err)
	}
	out := a.signals.CancelOnBrokenPipe(&a.Streams, &f.hasResults)
	lines := newProgress(a.ErrOut, agent.Done)
	a.ErrOut, o.Log, o.Hurry = lines, slog.New(a.logHandler(lines)), a.signals.Second()
	done := make(chan error, 1)
	go func() {
		err := a.runOnce(c, f, o, lines)
		if lost := out.Err(); err == nil && lost != nil {
			err = fmt.Errorf("writing the pods' output: %w", lost)
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-a.signals.Second():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(secondInterruptTime): // runOnce may hang in a write that nobody reads
		return &cli.Error{Code: a.signals.ExitCode(), Err: errors.New("interrupted twice; what was begun is left as it is")}
	}
}

// secondInterruptTime is the maximum time in which once exits after a second interrupt.
const secondInterruptTime = 900 * time.Millisecond

func (a *app) runOnce(c *cobra.Command, f *onceFlags, o agent.Options, lines *progress) error {
	ticking, stop := sync.WaitGroup{}, make(chan struct{})
	ticking.Go(func() { lines.tick(stop) })
	finish := sync.OnceFunc(func() {
		close(stop)
		ticking.Wait()
		lines.finish()
	})
	defer finish()
	var reportError error
	result, err := agent.Once(c.Context(), o, agent.OnceOptions{
		Timeout: f.timeout, Remove: f.remove, CleanupTimeout: f.cleanupTimeout, Progress: lines.report,
		Begun:       lines.watch,
		Interrupted: func(stops bool) { fmt.Fprintln(lines, onInterrupt(stops)) },
		Finished: func(r agent.Result) {
			f.hasResults.Store(true)
			reportError = a.writeReport(c.Context(), f, r)
			finish()
			a.signals.UntilNext(c.Context(), func() { a.printLogs(r, f.logs) })
		},
	})
	var late *agent.TimeoutError
	switch {
	case errors.As(err, &late):
		return &cli.Error{Code: cli.ExitTimeout, Err: err}
	case err != nil && c.Context().Err() != nil:
		return &cli.Error{Code: a.signals.ExitCode(), Err: errors.New("interrupted; nothing was started")}
	case err != nil:
		return notStarted(a.agentError(c, err))
	}
	a.warnOfLeft(result.Left)
	if reportError != nil {
		return reportError
	}
	return a.onceResult(result, f)
}

// onInterrupt returns the message for the first interrupt.
func onInterrupt(stops bool) string {
	if stops {
		return "interrupted: stopping the pods; interrupt again to kill them at once"
	}
	return "interrupted: not waiting for the clean-up"
}

// notStarted gives an error because of which nothing was started its exit code, cli.ExitUsage instead
// of cli.ExitFailed: cli.ExitFailed says that pods ran and failed.
func notStarted(err error) error {
	var f *cli.Error
	if !errors.As(err, &f) {
		f = &cli.Error{Code: cli.ExitFailed, Err: err}
	}
	if f.Code == cli.ExitFailed {
		f.Code = cli.ExitUsage
	}
	return f
}

// writeReport writes the results to the report file. It gives up at an interrupt or after the
// clean-up timeout, because the file may be a FIFO without a reader.
func (a *app) writeReport(ctx context.Context, f *onceFlags, r agent.Result) error {
	written := make(chan error, 1)
	go func() { written <- f.report.results(r) }()
	late := time.NewTimer(f.cleanupTimeout)
	defer late.Stop()
	select {
	case err := <-written:
		return err
	case <-late.C:
	case <-a.signals.Next(ctx):
	}
	return fmt.Errorf("the report is not written: nobody reads %s", f.report.path)
}

// onceResult returns an error with the exit code of the run, or nil if it succeeded.
func (a *app) onceResult(result agent.Result, f *onceFlags) error {
	switch {
	case result.Interrupted:
		return &cli.Error{Code: a.signals.ExitCode(), Err: errors.New(interruption(result))}
	case result.TimedOut:
		return &cli.Error{Code: cli.ExitTimeout, Err: fmt.Errorf("not done within %s: %s", f.timeout, unfinished(result))}
	case result.Failed():
		for _, p := range result.Pods {
			if result.Stranded()[pod.KeyOf(p)] {
				fmt.Fprintf(a.ErrOut, "%s/%s was not started: it %s\n", p.Namespace, p.Name, p.Status.Message)
			}
		}
		return &cli.Error{Code: cli.ExitFailed}
	}
	return nil
}

// interruption returns the error text for a run that was interrupted.
func interruption(r agent.Result) string {
	bad := unfinished(r)
	switch {
	case bad == "":
		return "interrupted while cleaning up"
	case r.Removed:
		return "interrupted; the pods were stopped and removed; not done: " + bad
	}
	return "interrupted; not done: " + bad
}

// warnOfLeft names the pods that could not be cleaned up in time. This does not change the exit
// code, which is that of the results.
func (a *app) warnOfLeft(left []agent.Left) {
	for _, l := range left {
		why := "the clean-up has not finished in time"
		if l.Why != nil {
			why = l.Why.Error()
		}
		fmt.Fprintf(a.ErrOut, "warning: pod %s is not cleaned up: %s\n", l.Key, why)
	}
	if len(left) > 0 {
		fmt.Fprintln(a.ErrOut, "hint: podrun down removes what is left of a pod")
	}
}

// printLogs prints the logs of the selected containers. For containers that failed or were not
// done, it also prints the reason or the state.
func (a *app) printLogs(r agent.Result, which string) {
	if which == "none" {
		return
	}
	for _, p := range r.Pods {
		for _, role := range summary.Roles(p) {
			if role.Status == nil {
				continue
			}
			bad := problemOf(p, role)
			if bad != "" {
				fmt.Fprintf(a.ErrOut, "%s/%s container %s %s\n", p.Namespace, p.Name, role.Status.Name, bad)
			}
			if bad != "" || which == "all" {
				a.printLog(p, *role.Status, which == "all")
			}
		}
	}
}

// problemOf describes how a container failed or, if the pod has no result, the state of the
// container. It returns "" if neither applies or the container never ran.
func problemOf(p *v1.Pod, r summary.Role) string {
	s, t := r.Status, r.Status.State.Terminated
	switch {
	// podrun stops sidecars when the pod is done, so their exit code is not a result.
	case t != nil && t.ExitCode != 0 && (!r.Init || !pod.IsSidecar(r.Container)):
		return fmt.Sprintf("failed: %s, exit code %d%s", t.Reason, t.ExitCode, summary.Plain(detail(t.Message)))
	case agent.Done(p) || t != nil || s.State.Running == nil && lastEnd(*s) == nil:
		return ""
	}
	state := "Running"
	if w := s.State.Waiting; w != nil {
		state = w.Reason
	}
	if last := lastEnd(*s); last != nil {
		state += " (" + exitOf(last) + ")"
	}
	return "was not done: " + state
}

func detail(message string) string {
	if message == "" {
		return ""
	}
	return ": " + message
}

// failedTail is the number of lines that printLog prints of the log of a failed container.
const failedTail = 20

func (a *app) printLog(p *v1.Pod, s v1.ContainerStatus, whole bool) {
	var o containerlog.ReadOptions
	if tail := failedTail; !whole {
		o.Tail = &tail
	}
	path := a.dirs().ContainerLog(pod.KeyOf(p), p.UID, s.Name, int(s.RestartCount))
	if err := containerlog.Read(context.Background(), path, o, cli.ForTerminal(a.Out), cli.ForTerminal(a.ErrOut)); err != nil {
		a.log.Debug("reading container log failed", "pod", p.Name, "container", s.Name, "err", err)
	}
}
