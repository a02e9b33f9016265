package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/plan"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/reconcile"
	"podrun.io/podrun/internal/status"
)

// OnceOptions are once's own.
type OnceOptions struct {
	// Timeout bounds the wait for results; 0: none.
	Timeout time.Duration
	// Remove stops and removes all pods in the end.
	Remove bool
	// Progress hears each pod whenever its status changed, from several goroutines. May be nil.
	Progress func(p *v1.Pod)
	// Begun is called once before anything is run, with what tells how far pulls are. May be nil.
	Begun func(pulling func(image string) (pod.Progress, bool))
	// Finished is called once when the results are in, before anything is removed.
	Finished func(r Result)
}

// Result is how a run of once ended.
type Result struct {
	// Pods are in order of namespace and name, with their last status.
	Pods []*v1.Pod
	// TimedOut and Interrupted say what ended the wait before every pod was done.
	TimedOut, Interrupted bool
}

// Failed reports that a pod failed.
func (r Result) Failed() bool {
	return slices.ContainsFunc(r.Pods, func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
}

// Stranded returns the pods that were not started because one that they were to start after has failed, or
// was not started either.
func (r Result) Stranded() map[pod.Key]bool {
	lost, stranded := map[pod.Key]bool{}, map[pod.Key]bool{}
	for _, p := range r.Pods {
		lost[pod.KeyOf(p)] = p.Status.Phase == v1.PodFailed
	}
	for again := true; again; {
		again = false
		for _, p := range r.Pods {
			key := pod.KeyOf(p)
			waits := p.Status.Reason == plan.ReasonWaitingForPods && !lost[key]
			if waits && slices.ContainsFunc(pod.After(p), func(k pod.Key) bool { return lost[k] }) {
				lost[key], stranded[key], again = true, true, true
			}
		}
	}
	return stranded
}

// onceLogTries makes once wait for a quarter of a minute for space for a log, and then go on: whoever waits for the
// result may do so without end.
const onceLogTries = 5

// Once runs the pods of all sources once and waits until each is done. When ctx ends first it stops the
// pods; when the time is out, those that are not done.
func Once(ctx context.Context, o Options, once OnceOptions) (Result, error) {
	want, err := readOnce(ctx, o)
	if err != nil {
		return Result{}, err
	}
	new(teller).tell(o.Log, want)
	board := newBoard(status.NewFiles(o.Dirs), want, once.Progress)
	h, err := open(ctx, o, ownerOnce, board)
	if err != nil {
		return Result{}, err
	}
	defer h.close()
	h.loop.Rerun, h.loop.LogTries = true, onceLogTries
	if once.Begun != nil {
		once.Begun(h.runtime.Pulling)
	}
	if h.conn != nil {
		o.loadImages(ctx, h.conn.Runtime)
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var result Result
	h.run(work, func(work context.Context, out chan<- manifest.Desired) {
		defer stop()
		send(work, out, want)
		result = board.wait(ctx, once.Timeout)
		if once.Finished != nil {
			once.Finished(result)
		}
		if keep := kept(want, result, once.Remove); len(keep.Pods) < len(want.Pods) {
			send(work, out, keep)
			board.waitGone(work, len(want.Pods)-len(keep.Pods))
		}
	})
	return result, nil
}

func send(ctx context.Context, out chan<- manifest.Desired, d manifest.Desired) {
	select {
	case out <- d:
	case <-ctx.Done():
	}
}

// kept is what stays of a run: everything, unless asked otherwise, interrupted, or not done in time.
func kept(want manifest.Desired, r Result, remove bool) manifest.Desired {
	d := manifest.Desired{Pods: map[pod.Key]*v1.Pod{}, Complete: true}
	if remove || r.Interrupted {
		return d
	}
	stranded := r.Stranded()
	for _, p := range r.Pods {
		if key := pod.KeyOf(p); !stranded[key] && (!r.TimedOut || Done(p)) {
			d.Pods[key] = want.Pods[key]
		}
	}
	return d
}

// readOnce reads every source one time. One manifest that cannot be used means that nothing is run.
func readOnce(ctx context.Context, o Options) (manifest.Desired, error) {
	all, err := o.sources(cacheOptions{}, nil)
	if err != nil {
		return manifest.Desired{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	in := make(chan manifest.Desired)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	reading.Go(func() { read(ctx, all, nil, in, func(string, error) {}) })
	for {
		select {
		case <-ctx.Done():
			return manifest.Desired{}, ctx.Err()
		case d := <-in:
			bad := strangers(d)
			for _, p := range d.Problems {
				bad = append(bad, p.Err)
			}
			if d.Complete {
				bad = append(bad, missing(d)...)
			}
			switch {
			case len(bad) > 0:
				return d, &ManifestError{errors.Join(bad...)}
			case d.Complete && len(d.Pods) == 0:
				return d, &ManifestError{fmt.Errorf("no pod in %s", sourceNames(all))}
			case d.Complete:
				return d, nil
			}
		}
	}
}

// missing are the ConfigMaps and Secrets that would have to come before a pod could start. Under once they
// never do.
func missing(d manifest.Desired) []error {
	var errs []error
	for _, p := range d.Pods {
		for _, r := range d.Missing(p) {
			errs = append(errs, fmt.Errorf("%s: pod %s needs the %s %q, which no manifest has", manifest.OriginOf(p).Path, pod.KeyOf(p), r.Kind, r.Name))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

// strangers names what pods are to start after and that is nowhere: they would wait for ever.
func strangers(d manifest.Desired) []error {
	var bad []error
	for _, p := range d.Pods {
		for _, key := range pod.After(p) {
			if d.Complete && d.Pods[key] == nil {
				bad = append(bad, &manifest.InvalidError{Errors: []manifest.FieldError{{
					File: manifest.OriginOf(p).Path, Field: "metadata.annotations[" + pod.AnnotationAfter + "]", Key: pod.KeyOf(p),
					Message: fmt.Sprintf("Not found: %q: no manifest of this run makes pod %s", p.Annotations[pod.AnnotationAfter], key),
				}}})
			}
		}
	}
	return bad
}

// ManifestError says that nothing was run because a manifest cannot be used. Its text is the errors, a
// line each.
type ManifestError struct{ Err error }

func (e *ManifestError) Error() string { return e.Err.Error() }
func (e *ManifestError) Unwrap() error { return e.Err }

// Done reports that a pod has come to its result: a job has ended, a service is ready.
func Done(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodFailed || reconcile.Arrived(p)
}
