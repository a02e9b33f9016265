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
	"podrun.io/podrun/internal/containerlog"
	"podrun.io/podrun/internal/pod"
)

const exitTimeout = 124

// onceFlags are once's own.
type onceFlags struct {
	run     runFlags
	timeout time.Duration
	report  report
	// cleanupTimeout is how long cleaning up may take.
	cleanupTimeout time.Duration
	logs           string
	remove         bool
	// hasResults says that the results are known.
	hasResults atomic.Bool
}

func (a *app) onceCommand() *cobra.Command {
	f := &onceFlags{report: report{began: time.Now()}}
	c := &cobra.Command{
		Use:         "once",
		Annotations: map[string]string{annotationQuiet: "yes"},
		Short:       "Run the pods of all manifests once and exit with their result",
		Long: "once runs the pods, waits until each is done and exits. A pod with restartPolicy Never or OnFailure is\n" +
			"done when it has succeeded or failed. One with Always is done when it is ready; it is left running\n" +
			"unless --rm.\n\n" +
			"A pod has one owner process at a time. If serve or another once has one of the pods, once names that\n" +
			"process and exits before it starts anything. It takes over pods that still run and that nobody has; those\n" +
			"that have completed run again. What it leaves running stays until serve, by a manifest, or down takes it.\n\n" +
			"Exit code: 0 every pod succeeded or is ready; 1 a pod failed; 2 bad usage, a manifest that cannot be used\n" +
			"or a pod that another process has (nothing was started); 3 containerd out of reach; 124 --timeout\n" +
			"passed; 130 interrupted, 143 by SIGTERM, 141 when nobody reads its output any more.\n\n" +
			"At --timeout the pods that are not done are stopped and removed, with their logs, at an interrupt all of\n" +
			"them; each has its grace period. At a second interrupt they are killed and once ends at once. An interrupt\n" +
			"when the results are known ends the wait for cleaning up within a second, also with 130 or 143.\n\n" +
			"once ends when the result is known: cleaning up that takes longer than --cleanup-timeout, beside the\n" +
			"grace periods of what ends, is a warning that names what is left. The report is replaced whatever ends\n" +
			"once, with the errors in it if no pod was run.\n\n" +
			"A pod with the annotation podrun.io/after starts when the pods that it names have succeeded or, with\n" +
			"restartPolicy Always, are ready. Should one of them fail, it is not started.",
		Example: "  # a job from standard input, with its whole output\n  podrun once --manifests - --logs all <job.yaml\n\n" +
			"  # in CI: at most ten minutes, a JUnit report, nothing left behind\n  podrun once --manifests ci/ --timeout 10m --report result.xml --rm",
		Args: argCount(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return a.once(c, f) },
	}
	f.run.add(c.Flags())
	c.Flags().DurationVar(&f.timeout, "timeout", 0, "how long to wait for the results (default: for ever)")
	c.Flags().DurationVar(&f.cleanupTimeout, "cleanup-timeout", agent.DefaultCleanupTimeout,
		"how long cleaning up may delay the end, beside grace periods")
	c.Flags().StringVar(&f.report.path, "report", "", "file for a report in JUnit's XML, written however once ends")
	c.Flags().StringVar(&f.logs, "logs", "failed", "whose logs to print in the end: all, failed (what failed or was not done) or none")
	c.Flags().BoolVar(&f.remove, "rm", false, "stop and remove all pods when done")
	a.unreported = func(err error) {
		if err := f.report.failure(err); err != nil {
			fmt.Fprintf(a.errOut, "warning: %v\n", err)
		}
	}
	return c
}

// check says what cannot be used, before anything runs.
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
		f.report.written.Store(true) // it cannot be
		return fmt.Errorf("--report: %w", err)
	}
	return nil
}

// writable says why a file can be neither written nor made.
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
	if err := needRoot(c); err != nil {
		return err
	}
	if err := f.report.begin(); err != nil {
		return notStarted(err)
	}
	out := a.untilNobodyReads(&f.hasResults)
	lines := newProgress(a.errOut, agent.Done)
	a.errOut, o.Log, o.Hurry = lines, slog.New(a.logHandler(lines)), a.hurry
	done := make(chan error, 1)
	go func() {
		err := a.runOnce(c, f, o, lines)
		if lost := out.failed(); err == nil && lost != nil {
			err = fmt.Errorf("writing the pods' output: %w", lost)
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-a.hurry:
	}
	select {
	case err := <-done:
		return err
	case <-time.After(hurryTime): // nobody may be reading what it prints
		return &failure{code: a.interrupted(), err: errors.New("interrupted twice; what was begun is left as it is")}
	}
}

// hurryTime is in what time once ends when it is interrupted for the second time.
const hurryTime = 900 * time.Millisecond

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
			a.untilInterrupted(c.Context(), func() { a.printLogs(r, f.logs) })
		},
	})
	var late *agent.TimeoutError
	switch {
	case errors.As(err, &late):
		return &failure{code: exitTimeout, err: err}
	case err != nil && c.Context().Err() != nil:
		return &failure{code: a.interrupted(), err: errors.New("interrupted; nothing was started")}
	case err != nil:
		return notStarted(a.agentError(c, err))
	}
	a.warnOfLeft(result.Left)
	if reportError != nil {
		return reportError
	}
	return a.onceResult(result, f)
}

// onInterrupt says what a first interrupt does.
func onInterrupt(stops bool) string {
	if stops {
		return "interrupted: stopping the pods; interrupt again to kill them at once"
	}
	return "interrupted: not waiting for the clean-up"
}

// notStarted gives an error that kept everything from being started its exit code: that of failed pods says that they ran.
func notStarted(err error) error {
	var f *failure
	if !errors.As(err, &f) {
		f = &failure{code: exitFailed, err: err}
	}
	if f.code == exitFailed {
		f.code = exitUsage
	}
	return f
}

// writeReport gives up when it is interrupted, or takes as long as cleaning up may: it may be a FIFO that nobody reads.
func (a *app) writeReport(ctx context.Context, f *onceFlags, r agent.Result) error {
	written := make(chan error, 1)
	go func() { written <- f.report.results(r) }()
	late := time.NewTimer(f.cleanupTimeout)
	defer late.Stop()
	select {
	case err := <-written:
		return err
	case <-late.C:
	case <-a.nextInterrupt(ctx):
	}
	return fmt.Errorf("the report is not written: nobody reads %s", f.report.path)
}

// nextInterrupt is closed when ctx ends or, if it has ended, at a second interrupt.
func (a *app) nextInterrupt(ctx context.Context) <-chan struct{} {
	if ctx.Err() != nil {
		return a.hurry
	}
	return ctx.Done()
}

// untilInterrupted returns when f does, or at the next interrupt: nobody may be reading what f prints.
func (a *app) untilInterrupted(ctx context.Context, f func()) {
	interrupted := a.nextInterrupt(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-interrupted:
	}
}

// onceResult is the exit code of a run.
func (a *app) onceResult(result agent.Result, f *onceFlags) error {
	switch {
	case result.Interrupted:
		return &failure{code: a.interrupted(), err: errors.New(interruption(result))}
	case result.TimedOut:
		return &failure{code: exitTimeout, err: fmt.Errorf("not done within %s: %s", f.timeout, unfinished(result))}
	case result.Failed():
		for _, p := range result.Pods {
			if result.Stranded()[pod.KeyOf(p)] {
				fmt.Fprintf(a.errOut, "%s/%s was not started: it %s\n", p.Namespace, p.Name, p.Status.Message)
			}
		}
		return &failure{code: exitFailed}
	}
	return nil
}

// interruption says what an interrupt has ended.
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

// warnOfLeft names the pods that could not be cleaned up in time. That is no result: the exit code stays the pods'.
func (a *app) warnOfLeft(left []agent.Left) {
	for _, l := range left {
		why := "that takes longer"
		if l.Why != nil {
			why = l.Why.Error()
		}
		fmt.Fprintf(a.errOut, "warning: pod %s is not cleaned up: %s\n", l.Key, why)
	}
	if len(left) > 0 {
		fmt.Fprintln(a.errOut, "hint: podrun down removes what is left of a pod")
	}
}

// printLogs prints what the chosen containers wrote and, for those that failed or were not done, why or how they are.
func (a *app) printLogs(r agent.Result, which string) {
	if which == "none" {
		return
	}
	for _, p := range r.Pods {
		for _, role := range cli.Roles(p) {
			if role.Status == nil {
				continue
			}
			bad := problemOf(p, role)
			if bad != "" {
				fmt.Fprintf(a.errOut, "%s/%s container %s %s\n", p.Namespace, p.Name, role.Status.Name, bad)
			}
			if bad != "" || which == "all" {
				a.printLog(p, *role.Status, which == "all")
			}
		}
	}
}

// problemOf says how a container failed, or how it is when the pod has no result; empty: neither, or it never ran.
func problemOf(p *v1.Pod, r cli.Role) string {
	s, t := r.Status, r.Status.State.Terminated
	switch {
	// A sidecar was told to end; how it did so is no result.
	case t != nil && t.ExitCode != 0 && (!r.Init || !pod.IsSidecar(r.Container)):
		return fmt.Sprintf("failed: %s, exit code %d%s", t.Reason, t.ExitCode, cli.Plain(detail(t.Message)))
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

// failedTail is how many lines of a failed container's log are shown.
const failedTail = 20

func (a *app) printLog(p *v1.Pod, s v1.ContainerStatus, whole bool) {
	var o containerlog.ReadOptions
	if tail := failedTail; !whole {
		o.Tail = &tail
	}
	path := a.dirs().ContainerLog(pod.KeyOf(p), p.UID, s.Name, int(s.RestartCount))
	if err := containerlog.Read(context.Background(), path, o, forTerminal(a.out), forTerminal(a.errOut)); err != nil {
		a.log.Debug("log not readable", "pod", p.Name, "container", s.Name, "why", err)
	}
}
