package query

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/status/summary"
	"podrun.io/podrun/internal/workload/revisions"
)

var errTimedOut = errors.New("timed out")

// justBegun is how long a serve may take to read its manifests.
const justBegun = 5 * time.Second

// WaitOptions are the options of Wait.
type WaitOptions struct {
	Pods      []pod.Key // with their full names or those in their manifests
	Condition Condition
	Timeout   time.Duration // 0: check once
	// Gone says that the condition is that the pods do not exist.
	Gone bool
}

// WaitFor returns the pods that wait waits for: those with the names, whether or not they exist, or else those that the
// selection finds now. It fails if it finds none, unless gone is true, which is if wait waits until they do not exist.
func (r *Reader) WaitFor(s Selection, names []string, gone bool) ([]pod.Key, error) {
	var keys []pod.Key
	expanded, err := r.expand(s.Namespace, names)
	for err != nil && r.Owners.JustBegun(justBegun) { // it has not read its manifests yet
		time.Sleep(handoverTime / 10)
		expanded, err = r.expand(s.Namespace, names)
	}
	if names = expanded; err != nil {
		return nil, err
	}
	for _, name := range names {
		keys = append(keys, pod.Key{Namespace: s.Namespace, Name: name})
	}
	if keys = append(keys, s.Manifests...); len(keys) > 0 {
		return keys, nil
	}
	pods, err := r.Select(s, nil)
	if err == nil && len(pods) == 0 && !gone {
		err = errors.New("no pods match: there is nothing to wait for")
	}
	for _, p := range pods {
		keys = append(keys, pod.KeyOf(p))
	}
	return keys, err
}

// Wait waits until each of the pods meets the condition, and prints those that do.
func (r *Reader) Wait(ctx context.Context, out io.Writer, o WaitOptions) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, errTimedOut)
	defer cancel()
	pending := o.Pods
	var details []string // the names of pending, with why they are not well
	err := r.OnChange(ctx, r.Dirs.StatusFiles().Dir(), func() (bool, error) {
		pods, err := r.Settled()
		if err != nil {
			return false, err
		}
		var unmet []pod.Key
		details = nil
		for _, key := range pending {
			name := key.Name
			p, err := Find(InNamespace(pods, key.Namespace), name)
			var notFound *NotFoundError
			switch {
			case err != nil && !errors.As(err, &notFound):
				return false, err
			case p != nil && !o.Gone && isRolledBack(p):
				return false, rolledBack("pod "+p.Name, p, BareName(name))
			case !o.Condition(p):
				unmet = append(unmet, key)
				details = append(details, name+whyNot(p))
			default:
				fmt.Fprintf(out, "pod/%s condition met\n", BareName(name))
			}
		}
		pending = unmet
		return len(pending) == 0, nil
	})
	if errors.Is(err, errTimedOut) {
		return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("timed out waiting for %s", strings.Join(details, ", "))}
	}
	return err
}

// whyNot returns why a pod is not well, in parentheses; "" if it is, or does not exist.
func whyNot(p *v1.Pod) string {
	if p == nil {
		return ""
	}
	why := summary.Why(p, time.Now())
	if status.IsUnowned(p) {
		why = p.Status.Message
	}
	if why == "" {
		return ""
	}
	return " (" + summary.Plain(why) + ")"
}

// isRolledBack reports that podrun has taken an edit of the pod back by itself. podrun undo is what somebody wanted.
func isRolledBack(p *v1.Pod) bool {
	why := p.Annotations[manifest.AnnotationRolledBack]
	return why != "" && why != revisions.Undone
}

// rolledBack returns the error of a wait for what, which has p's annotation; subject is its name for podrun history.
func rolledBack(what string, p *v1.Pod, subject string) error {
	return &cli.Error{
		Code: cli.ExitFailed,
		Err:  fmt.Errorf("%s is rolled back: %s", what, p.Annotations[manifest.AnnotationRolledBack]),
		Hint: "podrun history " + subject + " has its revisions",
	}
}
