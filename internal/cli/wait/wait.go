// Package wait is podrun wait: it waits until pods, and workloads, are in a state.
//
// Begin reading at Wait.Run.
package wait

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/pending"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/status/summary"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/revisions"
)

// Wait is what podrun wait waits for.
type Wait struct {
	// For is the value of --for.
	For string
	// All selects all objects of the namespace.
	All     bool
	Timeout time.Duration // 0: check once
	// Reader reads what there is, and Serve says what the serve that runs has to do.
	Reader *query.Reader
	Serve  pending.Serve
	// kind is that of the objects that are named or selected; "": pods.
	kind workload.Kind
	meet condition
}

// gone reports that the condition is that the objects do not exist.
func (w *Wait) gone() bool { return w.For == "delete" }

var errTimedOut = errors.New("timed out")

// Run waits for the pods and workloads that names and s select, until all of them meet the condition at one time, and
// prints them. names are those that Parse has returned.
func (w *Wait) Run(ctx context.Context, out io.Writer, s query.Selection, names []string) error {
	began := time.Now()
	objects, pods, err := w.targets(s, names)
	if err != nil {
		return err
	}
	awaits := !w.gone() && w.For != "create"
	if awaits && len(pods) > 0 {
		if err := w.Serve.CheckAwaited(ctx, pods, w.Timeout); err != nil {
			return err
		}
	}
	l := waiting{Wait: w, objects: objects, pods: pods}
	if awaits {
		l.edits(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, max(0, w.Timeout-time.Since(began)), errTimedOut)
	defer cancel()
	err = w.Reader.OnChange(ctx, l.dir(), func() (bool, error) {
		if l.differs && time.Since(l.read) > readAgain { // they may have been edited again
			l.edits(ctx)
		}
		return l.done()
	})
	if err != nil && !errors.Is(err, errTimedOut) && l.never == nil {
		return err
	}
	checked := cli.NewChecked(out)
	for _, text := range l.met {
		fmt.Fprintln(checked, text+" condition met")
	}
	switch {
	case l.never != nil:
		return l.never
	case err != nil:
		text := "timed out waiting for " + strings.Join(l.unmet, ", ")
		return &cli.Error{Code: cli.ExitFailed, Err: errors.New(text)}
	}
	return checked.Err()
}

// waiting is one wait: it looks at what is waited for again and again.
type waiting struct {
	*Wait
	objects []workload.ID
	pods    []pod.Key
	// wanted is what the manifests had when they were read; nil if that is not known.
	wanted *manifest.Desired
	read   time.Time
	// differs reports that something is not as wanted yet.
	differs bool
	// met and unmet are the texts about those that meet the condition and those that do not.
	met, unmet []string
	// never is why one of them never will; nil: all may.
	never error
}

// dir returns the directory that changes with what is waited for.
func (l *waiting) dir() string {
	for _, id := range l.objects {
		if id.Kind != workload.Job && id.Kind != workload.CronJob {
			return l.Reader.Dirs.StatusFiles().Dir()
		}
	}
	if len(l.pods) > 0 {
		return l.Reader.Dirs.StatusFiles().Dir()
	}
	return l.Reader.Dirs.Run // the workloads are saved there
}

// done reports whether all meet the condition now.
func (l *waiting) done() (bool, error) {
	l.met, l.unmet, l.differs = nil, nil, false
	pods, err := l.Reader.Settled()
	if err != nil {
		return false, err
	}
	for _, id := range l.objects {
		if err := l.object(id, pods); err != nil {
			return false, err
		}
	}
	for _, key := range l.pods {
		if err := l.pod(key, pods); err != nil {
			return false, err
		}
	}
	return len(l.unmet) == 0, l.never
}

// pod looks at a pod.
func (l *waiting) pod(key pod.Key, pods []*v1.Pod) error {
	p, err := query.Find(query.InNamespace(pods, key.Namespace), key.Name)
	var notFound *query.NotFoundError
	switch {
	case err != nil && !errors.As(err, &notFound):
		return err
	case p != nil && l.refusedPod(p) != nil:
		l.never = l.refusedPod(p)
	case p != nil && l.formerPod(p):
		l.unmet = append(l.unmet, key.Name+" (its manifest was edited)")
	case p != nil && !l.gone() && isRolledBack(p):
		l.never = rolledBack("pod "+p.Name, p.Annotations[manifest.AnnotationRolledBack], query.BareName(key.Name))
	default:
		l.evaluate(key, p)
	}
	return nil
}

// evaluate evaluates the condition for a pod as it is now. p is nil if it does not exist.
func (l *waiting) evaluate(key pod.Key, p *v1.Pod) {
	met, err := l.meet(p)
	switch {
	case met:
		l.met = append(l.met, "pod/"+query.BareName(key.Name))
	case err != nil: // it may go, for example with a container that has no status yet
		l.unmet = append(l.unmet, key.Name+whyNot(p)+" ("+err.Error()+")")
	default:
		l.unmet = append(l.unmet, key.Name+whyNot(p))
	}
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

// rolledBack returns the error of a wait for what, which is rolled back; subject is its name for podrun history.
func rolledBack(what, why, subject string) error {
	return &cli.Error{
		Code: cli.ExitFailed,
		Err:  fmt.Errorf("%s is rolled back: %s", what, why),
		Hint: "podrun history " + subject + " has its revisions",
	}
}
