// Package once runs the pods of all manifests once for podrun once: it prints the progress, writes
// the report and the logs when the results are known, and turns the result into an exit code. It
// ends soon after a second interrupt, whatever hangs.
//
// Package agent runs the pods. Begin reading at Run.
package once

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"podrun.io/podrun/internal/agent"
	"podrun.io/podrun/internal/agent/deadline"
	"podrun.io/podrun/internal/agent/result"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/agenterror"
	"podrun.io/podrun/internal/cli/progress"
	"podrun.io/podrun/internal/cli/report"
	"podrun.io/podrun/internal/pod"
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
	// Logs are the logs to print at the end: all, failed or none.
	Logs string
	// Remove stops and removes all pods at the end.
	Remove bool
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
	out := o.Signals.CancelOnBrokenPipe(r.Streams, &r.hasResults)
	r.lines = progress.New(r.Streams.ErrOut, result.Done)
	r.Streams.ErrOut = r.lines
	r.Agent.Log, r.Agent.Hurry = slog.New(o.LogHandler(r.lines)), o.Signals.Second()
	r.logs = &report.Logs{Out: r.Streams.Out, ErrOut: r.Streams.ErrOut, Dirs: r.Agent.Dirs, Log: r.Agent.Log}
	done := make(chan error, 1)
	go func() {
		err := r.pods(ctx)
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
		go r.logs.PrintStopped() // as they are now
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
	// hasResults is true when the results of all pods are known.
	hasResults atomic.Bool
}

// pods runs the pods and reports their results.
func (r *run) pods(ctx context.Context) error {
	ticking, stop := sync.WaitGroup{}, make(chan struct{})
	ticking.Go(func() { r.lines.Tick(stop) })
	finish := sync.OnceFunc(func() {
		close(stop)
		ticking.Wait()
		r.lines.Finish()
	})
	defer finish()
	var reportError error
	result, err := agent.Once(ctx, r.Agent, agent.OnceOptions{
		Timeout: r.Timeout, Remove: r.Remove, CleanupTimeout: r.CleanupTimeout, Progress: r.lines.Report,
		Begun:       r.lines.WatchPulls,
		Interrupted: func(stops bool) { fmt.Fprintln(r.lines, onInterrupt(stops)) },
		Finished: func(result result.Result) {
			r.hasResults.Store(true)
			reportError = r.Report.ResultsUntil(reported(result), r.CleanupTimeout, r.Signals.Next(ctx))
			finish()
			r.logs.Select(reported(result), r.Logs)
			r.Signals.UntilNext(ctx, r.logs.Print)
		},
		Removing: r.logs.Keep,
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
	r.printStopped(ctx)
	result.Interrupted = result.Interrupted || ctx.Err() != nil
	r.warnOfLeft(result.Left)
	if reportError != nil {
		return reportError
	}
	return r.exit(result)
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
func reported(r result.Result) report.Run {
	return report.Run{
		Pods: r.Pods, TimedOut: r.TimedOut, Interrupted: r.Interrupted, Removed: r.Removed, Done: result.Done,
		Stops: r.Stops, Durations: r.Durations,
	}
}

// exit returns an error with the exit code of the run, or nil if it succeeded.
func (r *run) exit(result result.Result) error {
	switch {
	case result.Interrupted:
		return &cli.Error{Code: r.Signals.ExitCode(), Err: errors.New(reported(result).Message(r.Timeout))}
	case result.TimedOut:
		return &cli.Error{Code: cli.ExitTimeout, Err: errors.New(reported(result).Message(r.Timeout))}
	case result.Failed():
		for _, p := range result.Pods {
			if result.Stranded()[pod.KeyOf(p)] {
				fmt.Fprintf(r.Streams.ErrOut, "%s/%s was not started: it %s\n",
					p.Namespace, p.Name, cli.Plain(p.Status.Message))
			}
		}
		return &cli.Error{Code: cli.ExitFailed}
	}
	return nil
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
