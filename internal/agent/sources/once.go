package sources

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/agent/record"
	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/mux"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
)

// Once is what one run has read.
type Once struct {
	// Desired is what is desired at first.
	Desired manifest.Desired
	// Record is what is recorded of the run, which no later run knows.
	Record *record.Record
	mux    *mux.Mux
}

// ReadOnce reads every source once, for one run. If a manifest cannot be used it returns a
// *ManifestError.
func (o Opener) ReadOnce(ctx context.Context) (*Once, error) {
	all, err := o.Open()
	if err != nil {
		return nil, err
	}
	once := &Once{Record: record.New(nil)}
	var names []string
	for _, s := range all {
		names = append(names, s.Name())
	}
	once.mux = mux.New(names, o.Running, once.Record)
	ctx, cancel := context.WithCancel(ctx)
	in := make(chan manifest.Desired)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	reading.Go(func() { o.run(ctx, all, once.mux, in, func(string, error) {}) })
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case d := <-in:
			bad := strangers(d)
			for _, p := range d.Problems {
				if !errors.Is(p.Err, mux.ErrUnanswered) { // such as a command that still computes
					bad = append(bad, p.Err)
				}
			}
			if d.Complete {
				bad = append(bad, missing(d)...)
				bad = append(bad, suspended(d)...)
				bad = append(bad, cronJobs(d)...)
			}
			once.Desired = d
			switch {
			case len(bad) > 0:
				return once, &ManifestError{Err: errors.Join(bad...), Valid: len(d.Problems) == 0}
			case d.Complete && len(d.Pods)+len(d.Jobs) == 0:
				return once, &ManifestError{Err: fmt.Errorf("no pod in %s", Names(all)), Valid: true}
			case d.Complete:
				return once, nil
			}
		}
	}
}

// Follow sends what is desired, and again as the Jobs of the run go on, until ctx ends or end is called.
// It calls sent with each desired set before it sends it.
func (o *Once) Follow(
	ctx context.Context, sent func(manifest.Desired), out chan<- manifest.Desired,
) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	pass := func(d manifest.Desired) {
		sent(d)
		select {
		case out <- d:
		case <-ctx.Done():
		}
	}
	if len(o.Desired.Jobs) == 0 {
		pass(o.Desired)
		return cancel
	}
	in := make(chan manifest.Desired)
	following.Go(func() { _ = o.mux.Run(ctx, nil, in) })
	following.Go(func() {
		for ctx.Err() == nil {
			select {
			case d := <-in:
				pass(d)
			case <-ctx.Done():
			}
		}
	})
	return func() { cancel(); following.Wait() }
}

// Recall makes the pods that an earlier run of once has left of the Jobs end before the Jobs begin. It
// returns which pods to terminate when they are not desired: those, and those of this run. nil if there are no Jobs.
func (o *Once) Recall(
	store *checkpoint.Store, boot string, wall func() time.Time, log *slog.Logger,
) func(pod.Observed) bool {
	if len(o.Desired.Jobs) == 0 {
		return nil
	}
	all, err := store.List()
	if err != nil {
		log.Warn("pods that an earlier run has left of Jobs are not known", "err", err)
	}
	o.Record.At(boot, wall, nil, log)
	o.Record.Forget() // what was decided while the manifests were read has not begun
	for _, revisions := range all {
		c := revisions[0]
		if of, _ := workload.Of(c.Pod); c.Owner == owner.Once && o.Desired.Jobs[of] != nil {
			o.Record.Add(c)
		}
	}
	return func(seen pod.Observed) bool { return o.Desired.Pods[seen.Key] != nil || o.Record.Has(seen.Key) }
}

// suspended returns an error for each Job that is suspended: it would never finish.
func suspended(d manifest.Desired) []error {
	var errs []error
	for _, w := range d.Workloads {
		if job, is := w.Object.(*batchv1.Job); is && w.Owner == nil && *job.Spec.Suspend {
			errs = append(errs, fmt.Errorf("%s: %s is suspended: it would never finish",
				manifest.OriginOf(w.Template).Path, w))
		}
	}
	return errs
}

// ErrCronJob is an error because of a CronJob, which once does not run.
var ErrCronJob = errors.New("has no end: only podrun serve runs CronJobs")

// cronJobs returns an error for each CronJob.
func cronJobs(d manifest.Desired) []error {
	var errs []error
	for _, w := range d.Workloads {
		if w.Kind == workload.CronJob {
			errs = append(errs, fmt.Errorf("%s: %s %w", manifest.OriginOf(w.Template).Path, w, ErrCronJob))
		}
	}
	return errs
}

// missing returns an error for each ConfigMap, Secret and PersistentVolume that a pod needs and no manifest has:
// under once it can never appear.
func missing(d manifest.Desired) []error {
	var errs []error
	for _, p := range d.Pods {
		for _, r := range append(d.Missing(p), d.MissingVolumes(p)...) {
			errs = append(errs, fmt.Errorf("%s: pod %s needs the %s %q, which no manifest has",
				manifest.OriginOf(p).Path, pod.KeyOf(p), r.Kind, r.Name))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

// strangers returns an error for each pod that starts after a pod that no manifest has: it would
// wait for ever.
func strangers(d manifest.Desired) []error {
	var bad []error
	for _, p := range d.Pods {
		for _, key := range pod.After(p) {
			if _, job := d.Arrived[key]; d.Complete && d.Pods[key] == nil && !job {
				bad = append(bad, &manifest.InvalidError{Errors: []manifest.FieldError{{
					File:  manifest.OriginOf(p).Path,
					Field: "metadata.annotations[" + pod.AnnotationAfter + "]",
					Key:   pod.KeyOf(p),
					Message: fmt.Sprintf("Not found: %q: no manifest of this run makes pod %s",
						p.Annotations[pod.AnnotationAfter], key),
				}}})
			}
		}
	}
	return bad
}

// ManifestError says that nothing was run because a manifest cannot be used. Its text has one error
// per line.
type ManifestError struct {
	Err error
	// Valid reports that podrun validate finds no error: the manifests lack one, or once cannot run what they have.
	Valid bool
}

func (e *ManifestError) Error() string { return e.Err.Error() }
func (e *ManifestError) Unwrap() error { return e.Err }
