// Package once runs the pods of all manifests once for podrun once: it prints the progress, writes
// the report and the logs when the results are known, and turns the result into an exit code. It
// ends soon after a second interrupt, whatever hangs.
//
// Package agent runs the pods. Begin reading at Run.
package once

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/agent/deadline"
	"podrun.io/podrun/internal/agent/result"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/agenterror"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/cli/progress"
	"podrun.io/podrun/internal/cli/report"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/timeline"
)

// Options are the options of Run. All but Timeout are required.
type Options struct {
	// Command is the command line in hints: podrun once.
	Command string
	// Streams are replaced by Run, so that what is printed after it is not mixed with the progress.
	Streams *cli.Streams
	Signals *cli.Signals
	// LogHandler returns the handler of a log that is written to w.
	LogHandler func(w io.Writer) slog.Handler
	Agent      agent.Options
	Report     *report.File
	// Timeout is the maximum time to wait for the results; 0: no limit.
	Timeout time.Duration
	// CleanupTimeout is how long the clean-up may delay the exit, not counting the grace periods of
	// pods.
	CleanupTimeout time.Duration
	// Stable is how long a service has to be ready, without a restart.
	Stable time.Duration
	// PullTimeout is how long pulls of an image may fail or make no progress.
	PullTimeout time.Duration
	// Logs are the logs to print at the end: all, failed or none. stream prints all logs as they are
	// written.
	Logs string
	// Groups are those of the log of a CI service.
	Groups *report.Groups
	// ExitCodeFrom names the pod, Job or container whose exit code is that of a run that has failed, or is "".
	ExitCodeFrom string
	// exitCodeContainer is the container of ExitCodeFrom, or "". It is set before anything is started.
	exitCodeContainer string
	// Remove stops and removes all pods at the end.
	Remove bool
	// Timeline is the file for the timeline of the run, or "".
	Timeline string
}

// secondInterruptTime is the maximum time in which Run returns after a second interrupt. Until killTime it waits
// for the killed pods, and then prints their logs even if the pods are still there.
const (
	secondInterruptTime = 900 * time.Millisecond
	killTime            = 500 * time.Millisecond
)

// Run runs the pods and returns an error with the exit code of the run, or nil if it succeeded.
func Run(ctx context.Context, o Options) error {
	if err := o.Report.Begin(); err != nil {
		return notStarted(err)
	}
	r := &run{Options: o}
	if o.Timeline != "" {
		r.spans = timeline.New()
	}
	out := o.Signals.CancelOnBrokenPipe(r.Streams, &r.hasResults)
	coloured, onTerminal := printers.Coloured(r.Streams.Out), cli.TerminalOf(r.Streams.Out) != nil
	r.lines = progress.New(r.Streams.ErrOut, result.Done)
	if onTerminal && cli.TerminalOf(r.Streams.ErrOut) != nil {
		r.Streams.Out = r.lines // it writes above what it draws
	}
	r.Streams.ErrOut = r.lines
	r.Agent.Log, r.Agent.Hurry = slog.New(o.LogHandler(r.lines)), o.Signals.Second()
	r.logs = &report.Logs{
		Out: r.Streams.Out, ErrOut: r.Streams.ErrOut, Groups: r.Groups, Dirs: r.Agent.Dirs, Log: r.Agent.Log,
	}
	if r.Logs == "stream" {
		r.stream = &report.Stream{
			Out: r.Streams.Out, ErrOut: r.Streams.ErrOut, Coloured: coloured, Groups: r.Groups,
			Dirs: r.Agent.Dirs, Log: r.Agent.Log, Began: time.Now(),
		}
	}
	closeStream := sync.OnceFunc(r.closeStream)
	defer closeStream()
	done := make(chan error, 1)
	go func() {
		err := r.pods(ctx)
		closeStream()
		if writeErr := out.Err(); err == nil && writeErr != nil {
			err = fmt.Errorf("writing the pods' output: %w", writeErr)
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-o.Signals.Second():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(killTime):
		go func() { _ = r.completeReport(ctx) }() // as they are now
		go r.logs.PrintStopped()
	}
	select {
	case err := <-done:
		return err
	case <-time.After(secondInterruptTime - killTime): // pods may hang in a write that nobody reads
		return &cli.Error{
			Code: o.Signals.ExitCode(),
			Err:  errors.New("interrupted twice; what was begun is left as it is"),
		}
	}
}

// run is one run of the pods.
type run struct {
	Options
	lines *progress.Progress
	logs  *report.Logs
	// stream is nil if logs are printed at the end only.
	stream *report.Stream
	// exitCodeOf is the pod whose exit code is that of the run if it fails, or nil.
	exitCodeOf *v1.Pod
	// exitCodeJob is the name of the Job whose template that is; "" if it is none.
	exitCodeJob string
	// spans are for Timeline; nil without it.
	spans *timeline.Recorder
	// hasResults is true when the results of all pods are known. An interrupt after that, printingEnds, ends the
	// printing of logs.
	hasResults   atomic.Bool
	printingEnds atomic.Pointer[<-chan struct{}]
	// givenUp is closed at the second interrupt, or when after the first one the clean-up has had its time: a reader
	// that has stopped reading must not keep pods from being stopped.
	givenUp chan struct{}
}

// pods runs the pods and reports their results.
func (r *run) pods(ctx context.Context) error {
	r.givenUp = make(chan struct{})
	context.AfterFunc(ctx, func() {
		select {
		case <-r.Signals.Second():
		case <-time.After(r.CleanupTimeout):
		}
		close(r.givenUp)
	})
	ticking, stop := sync.WaitGroup{}, make(chan struct{})
	ticking.Go(func() { r.lines.Tick(stop) })
	finish := sync.OnceFunc(func() {
		close(stop)
		ticking.Wait()
		r.lines.Finish()
	})
	defer finish()
	var reportError, timelineError error
	result, err := agent.Once(ctx, r.Agent, agent.OnceOptions{
		Timeout: r.Timeout, Remove: r.Remove, CleanupTimeout: r.CleanupTimeout, Progress: r.progress,
		Stable: r.Stable, PullTimeout: r.PullTimeout,
		Begun: r.lines.WatchPulls, Desired: r.desired,
		Interrupted: func(stops bool) { fmt.Fprintln(r.lines, onInterrupt(stops)) },
		Finished: func(result result.Result) {
			r.printingEnds.Store(new(r.Signals.Next(ctx)))
			r.hasResults.Store(true)
			reportError = r.Report.ResultsUntil(r.reported(result), r.CleanupTimeout, r.Signals.Next(ctx))
			timelineError = r.writeTimeline()
			finish()
			if r.stream != nil { // a full disk may keep a log from its end
				r.stream.Wait(result.Pods, r.CleanupTimeout, r.printingEnd())
			}
			r.logs.Select(r.reported(result), r.Logs)
			r.Signals.UntilNext(ctx, r.logs.Print)
		},
		Removing: r.removing,
		Timeline: r.spans,
	})
	var timedOut *deadline.TimeoutError
	switch {
	case errors.As(err, &timedOut):
		return &cli.Error{Code: cli.ExitTimeout, Err: err}
	case err != nil && ctx.Err() != nil:
		return &cli.Error{Code: r.Signals.ExitCode(), Err: errors.New("interrupted; nothing was started")}
	case err != nil:
		return notStarted(agenterror.Explain(ctx, r.Command, err))
	}
	if reportError == nil {
		reportError = r.completeReport(ctx)
	}
	r.printStopped(ctx)
	r.printRetained(result)
	result.Interrupted = result.Interrupted || ctx.Err() != nil
	r.warnOfLeft(result.Left)
	return r.end(result, errors.Join(reportError, timelineError))
}

// end returns the error of the run. If the pods have failed, that is why, whether or not the report and the timeline
// could be written.
func (r *run) end(result result.Result, unwritten error) error {
	err := r.exit(result)
	if err == nil {
		return unwritten
	}
	if unwritten != nil {
		cli.Warnf(r.Streams.ErrOut, "%v", unwritten)
	}
	return err
}

// progress prints the progress of a pod, and its logs as they are written.
func (r *run) progress(p *v1.Pod) {
	r.lines.Report(p)
	if r.stream != nil {
		r.stream.Follow(p)
	}
}

// printingEnd returns a channel that is closed at the interrupt that ends the printing of logs. An earlier one stops
// the pods: what they write until then is printed.
func (r *run) printingEnd() <-chan struct{} {
	if next := r.printingEnds.Load(); next != nil {
		return *next
	}
	return r.givenUp
}

// closeStream ends the printing of logs as they are written.
func (r *run) closeStream() {
	if r.stream != nil {
		r.stream.Close(r.printingEnd())
	}
}

// removing is called before the logs of a pod are removed.
func (r *run) removing(key pod.Key, uid pod.UID) {
	r.logs.Keep(key, uid)
	r.Report.Removing(key, uid)
	if r.stream != nil {
		r.stream.Removing(key, uid, r.printingEnd())
	}
}

// completeReport adds what was written by what was stopped to the report.
func (r *run) completeReport(ctx context.Context) error {
	return r.Report.Complete(r.CleanupTimeout, r.Signals.Next(ctx))
}

// printStopped prints the logs of what was stopped, until the next interrupt. After the second one
// there is no next: Run then limits the time.
func (r *run) printStopped(ctx context.Context) {
	select {
	case <-r.Signals.Second():
		r.logs.PrintStopped()
	default:
		r.Signals.UntilNext(ctx, r.logs.PrintStopped)
	}
}

// printRetained says where the logs of pods are that did not finish.
func (r *run) printRetained(result result.Result) {
	for _, p := range result.Unfinished() {
		dir := r.Agent.Dirs.PodLogs(pod.KeyOf(p), p.UID)
		if _, err := os.Lstat(dir); err == nil {
			fmt.Fprintf(r.Streams.ErrOut, "the logs of %s stay in %s until it runs again\n", pod.KeyOf(p), dir)
		}
	}
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

// reported returns the result of a run for package report.
func (r *run) reported(of result.Result) report.Run {
	return report.Run{
		Pods: of.Pods, Jobs: jobsOf(of),
		TimedOut: of.TimedOut, Interrupted: of.Interrupted, Removed: of.Removed, Done: of.Done,
		Problem: of.Problem, Stops: of.Stops, Stranded: of.Stranded(), Durations: of.Durations, Runs: of.Runs,
		Began: r.Report.Began, Dirs: r.Agent.Dirs, Output: r.logs.Output,
		Warn: func(text string) { cli.Warnf(r.Streams.ErrOut, "%s", text) },
	}
}

// jobsOf returns the Jobs of a run for package report, with their pods in the order of their creation.
func jobsOf(of result.Result) []report.Job {
	var all []report.Job
	stranded := of.Stranded()
	for _, j := range of.Jobs {
		job := j.Spec.DeepCopy()
		job.Status = j.Status
		one := report.Job{Job: job, Manifest: j.Manifest, Stranded: stranded[j.At]}
		for _, p := range of.Pods {
			if owner, is := of.JobOf(p); is && owner.ID == j.ID {
				one.Pods = append(one.Pods, p)
			}
		}
		slices.SortStableFunc(one.Pods, func(a, b *v1.Pod) int {
			return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
		})
		all = append(all, one)
	}
	return all
}

// exit returns an error with the exit code of the run, or nil if it succeeded.
func (r *run) exit(result result.Result) error {
	switch {
	case result.Interrupted:
		return &cli.Error{Code: r.Signals.ExitCode(), Err: errors.New(r.reported(result).Message(r.Timeout))}
	case result.TimedOut:
		return &cli.Error{Code: cli.ExitTimeout, Err: errors.New(r.reported(result).Message(r.Timeout))}
	case result.Failed():
		for _, p := range result.Pods {
			if result.Stranded()[pod.KeyOf(p)] {
				fmt.Fprintf(r.Streams.ErrOut, "%s/%s was not started: it %s\n",
					p.Namespace, p.Name, cli.Plain(p.Status.Message))
			}
		}
		return r.failure(result)
	}
	return nil
}

// failure returns the error of a run in which a pod or a Job has failed.
func (r *run) failure(result result.Result) error {
	failed := &cli.Error{Code: r.exitCode(result)}
	var stuck []error
	for _, p := range result.Pods {
		why := result.Stuck[pod.KeyOf(p)]
		if why == nil {
			continue
		}
		stuck = append(stuck, fmt.Errorf("pod %s cannot start: %w", pod.KeyOf(p), why))
		var fix interface{ Hint() string }
		if errors.As(why, &fix) && failed.Hint == "" {
			failed.Hint = fix.Hint()
		}
	}
	for _, j := range result.Jobs {
		if c := j.Failed(); c != nil {
			stuck = append(stuck, fmt.Errorf("job %s has failed: %s: %s", j.Key, c.Reason, c.Message))
		}
	}
	failed.Err = errors.Join(stuck...)
	return failed
}

// warnOfLeft names the pods that could not be cleaned up in time. This does not change the exit
// code, which is that of the results.
func (r *run) warnOfLeft(left []result.Left) {
	for _, l := range left {
		why := "the clean-up has not finished in time"
		if l.Why != nil {
			why = l.Why.Error()
		}
		cli.Warnf(r.Streams.ErrOut, "pod %s is not cleaned up: %s", l.Key, why)
	}
	if len(left) > 0 {
		fmt.Fprintln(r.Streams.ErrOut, "hint: podrun down removes what is left of a pod")
	}
}

// DefaultLogs returns the default of --logs. ci is the variable CI, which CI services set.
func DefaultLogs(terminal bool, ci string) string {
	if terminal || ci != "" && ci != "0" && ci != "false" {
		return "stream"
	}
	return "failed"
}
