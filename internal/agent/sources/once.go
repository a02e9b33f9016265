package sources

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
)

// ReadOnce reads every source once, for one run. If a manifest cannot be used it returns a
// *ManifestError.
func (o Opener) ReadOnce(ctx context.Context) (manifest.Desired, error) {
	all, err := o.Open()
	if err != nil {
		return manifest.Desired{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	in := make(chan manifest.Desired)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	reading.Go(func() { o.Run(ctx, all, in, func(string, error) {}) })
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
				return d, &ManifestError{fmt.Errorf("no pod in %s", Names(all))}
			case d.Complete:
				return d, nil
			}
		}
	}
}

// missing returns an error for each ConfigMap and Secret that a pod needs and no manifest has:
// under once it can never appear.
func missing(d manifest.Desired) []error {
	var errs []error
	for _, p := range d.Pods {
		for _, r := range d.Missing(p) {
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
			if d.Complete && d.Pods[key] == nil {
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
type ManifestError struct{ Err error }

func (e *ManifestError) Error() string { return e.Err.Error() }
func (e *ManifestError) Unwrap() error { return e.Err }
