package wait

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/jobs"
	"podrun.io/podrun/internal/workload/revisions"
)

// complete is the condition of a workload whose update has ended; of a Job it is Kubernetes' own.
const complete = "Complete"

// conditions are those that workloads have themselves, by their kinds. Others are those of their pods.
var conditions = map[workload.Kind][]string{
	workload.Job:         {complete, "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"},
	workload.CronJob:     nil,
	workload.Deployment:  {"Available", "Progressing", complete},
	workload.ReplicaSet:  {complete},
	workload.StatefulSet: {complete},
	workload.DaemonSet:   {complete},
}

// ofPods are the conditions of pods.
var ofPods = []v1.PodConditionType{
	v1.PodReady, v1.ContainersReady, v1.PodInitialized, v1.PodScheduled, v1.PodReadyToStartContainers,
	v1.DisruptionTarget,
}

// name returns the name of the condition in --for; "" if it is none.
func (w *Wait) name() string {
	kind, rest, _ := strings.Cut(w.For, "=")
	name, _, _ := strings.Cut(rest, "=")
	if kind != "condition" {
		return ""
	}
	return name
}

// itself reports that a workload of a kind has what --for asks for itself; else its pods have it.
func (w *Wait) itself(kind workload.Kind) bool {
	name := w.name()
	own := slices.ContainsFunc(conditions[kind], func(c string) bool { return strings.EqualFold(c, name) })
	return own || kind == workload.Job || kind == workload.CronJob || w.gone() || strings.HasPrefix(w.For, "jsonpath=")
}

// refuse returns an error if neither a workload of a kind nor its pods ever have what --for asks for.
func (w *Wait) refuse(kind workload.Kind) error {
	own, name := conditions[kind], w.name()
	mine := slices.ContainsFunc(own, func(c string) bool { return strings.EqualFold(c, name) })
	pods := slices.ContainsFunc(ofPods, func(c v1.PodConditionType) bool { return strings.EqualFold(string(c), name) })
	switch {
	case kind == workload.CronJob && (name != "" || strings.HasPrefix(w.For, "phase=")):
		return fmt.Errorf("--for %q: a CronJob has no conditions; wait for one of its Jobs", w.For)
	case kind == workload.Job && strings.HasPrefix(w.For, "phase="):
		return fmt.Errorf("--for %q: a Job has no phase; its conditions are Complete and Failed", w.For)
	case name == "" || mine || pods && kind != workload.Job:
		return nil
	}
	if kind == workload.Job {
		return fmt.Errorf("--for %q: a Job has the conditions %s", w.For, strings.Join(own, ", "))
	}
	return fmt.Errorf("--for %q: of a %s it is %s, or a condition of its pods, such as Ready", w.For, kind,
		strings.Join(own, ", "))
}

// object looks at a workload. pods are all that there are.
func (l *waiting) object(id workload.ID, pods []*v1.Pod) error {
	text := strings.ToLower(string(id.Kind)) + "s/" + id.Key.Name
	o, err := l.Reader.Object(id, pods)
	if err != nil {
		return err
	}
	former, err := l.formerObject(o)
	if err != nil {
		return err
	}
	met, why, err := l.meets(o)
	switch {
	case err != nil:
		text += " (" + err.Error() + ")"
	case met && !former:
		l.met = append(l.met, query.Resource(id.Kind)+"/"+id.Key.Name)
		return nil
	case former:
		text += " (its manifest was edited)"
	case why != nil:
		l.never = why
	}
	l.unmet = append(l.unmet, text)
	return nil
}

// meets reports whether a workload is what --for asks for, and why it never will be; nil: it may become so. o is nil if
// there is none. err is why that cannot be evaluated as the workload is now.
func (l *waiting) meets(o *query.Object) (met bool, never, err error) {
	switch {
	case l.gone():
		return o == nil, nil, nil
	case o == nil:
		return false, nil, nil
	case l.For == "create":
		return true, nil, nil
	case l.name() == "":
		f, err := parseField(strings.TrimPrefix(l.For, "jsonpath="))
		if err != nil {
			return false, nil, err
		}
		met, err = f(o.Object)
		return met, nil, err
	}
	p := &v1.Pod{}
	add := func(name string, status v1.ConditionStatus) {
		c := v1.PodCondition{Type: v1.PodConditionType(name), Status: status}
		p.Status.Conditions = append(p.Status.Conditions, c)
	}
	switch of := o.Object.(type) {
	case *batchv1.Job:
		for _, c := range of.Status.Conditions {
			add(string(c.Type), c.Status)
		}
		met, err = l.meet(p)
		return met, cmp.Or(hasFinished(of), l.isOfOnce(o)), err
	case *appsv1.Deployment:
		for _, c := range of.Status.Conditions {
			add(string(c.Type), c.Status)
		}
	}
	ended, back := completeness(o)
	add(complete, ended)
	if strings.EqualFold(l.name(), complete) && back != "" && back != revisions.Undone {
		never = rolledBack(o.ID.String(), back, string(o.Kind)+"/"+o.Key.Name)
	}
	met, err = l.meet(p)
	return met, never, err
}

// isOfOnce returns the error that a Job is not one of serve, which alone saves the conditions of Jobs; nil if it is, or
// may be: serve saves what it has begun a moment later.
func (l *waiting) isOfOnce(o *query.Object) error {
	if !o.PodsOnly || time.Since(o.Since) < justBegun || l.Reader.Owners.JustBegun(justBegun) {
		return nil
	}
	return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf(
		"only pods are left of job %s: its result is the exit code of the podrun once that ran it", o.Key.Name)}
}

// hasFinished returns the error that a Job has finished, and so will never have another condition; nil if it has not.
func hasFinished(job *batchv1.Job) error {
	end := jobs.Finished(&job.Status)
	if end == nil {
		return nil
	}
	text := fmt.Sprintf("job %s has failed: %s: %s", job.Name, end.Reason, end.Message)
	if end.Type == batchv1.JobComplete {
		text = fmt.Sprintf("job %s is complete", job.Name)
	}
	return &cli.Error{Code: cli.ExitFailed, Err: errors.New(text)}
}

// completeness reports that an update of a workload, or going back from it, has ended: all of its pods have the
// template that is wanted and are available, as kubectl rollout status sees it, and no others are left. back is why
// the pods have a former template, if they do.
func completeness(o *query.Object) (ended v1.ConditionStatus, back string) {
	former := int32(0)
	for _, p := range o.Pods {
		if why := p.Annotations[manifest.AnnotationRolledBack]; why != "" && p.DeletionTimestamp == nil {
			former, back = former+1, why
		}
	}
	s := o.Summary
	updated := s.Updated
	if back == revisions.Undone {
		updated = former
	}
	if updated == s.Desired && s.Current == s.Desired && s.Available == s.Desired && s.Terminating == 0 {
		return v1.ConditionTrue, back
	}
	return v1.ConditionFalse, back
}
