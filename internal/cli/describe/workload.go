package describe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/event"
	"podrun.io/podrun/internal/workload"
)

// Warnings tell the user why what is shown may be old or incomplete. list.Lister implements it.
type Warnings interface {
	// WarnOfAge warns if the pods are not kept up to date.
	WarnOfAge(pods []*v1.Pod) bool
	// WarnOfManifests names the manifests with errors: one may be the reason why a pod does not exist.
	WarnOfManifests()
	// SayNone says that the selection selects nothing.
	SayNone(s query.Selection)
}

// Selected prints the details of the pods and workloads of a selection, or of those that the arguments `pods NAME...`,
// `TYPE NAME...` or `TYPE/NAME...` name: each workload but a CronJob is followed by its pods. names are the names of
// the arguments, as query.PodNames returns them.
func (d *Printer) Selected(ctx context.Context, r *query.Reader, s query.Selection, args, names []string) error {
	checked, out := cli.NewChecked(d.Out), d.Out
	d.Out = checked
	defer func() { d.Out = out }()
	if err := d.selected(ctx, r, s, args, names); err != nil {
		return err
	}
	return checked.Err()
}

func (d *Printer) selected(ctx context.Context, r *query.Reader, s query.Selection, args, names []string) error {
	named, workloadNames, is := query.WorkloadArgs(args)
	shown := 0
	var missing []error
	for _, kind := range query.Kinds() {
		if kind != named && len(s.Of(kind)) == 0 {
			continue
		}
		objects, absent, err := r.Objects(kind, s, workloadNames)
		if err != nil {
			return err
		}
		missing = append(missing, absent...)
		for _, o := range objects {
			if shown == 0 {
				d.Warn.WarnOfAge(o.Pods)
			}
			gap(d.Out, &shown)
			if err := d.workload(ctx, o, &shown); err != nil {
				return err
			}
		}
	}
	if bare := s.Bare(); !is && (len(bare) > 0 || !s.HasWorkloads()) {
		s.Manifests, s.Jobs, s.CronJobs, s.Workloads = bare, nil, nil, nil
		selected, err := r.Select(s, names)
		d.Warn.WarnOfAge(selected)
		missing = append(missing, err)
		for _, p := range selected {
			gap(d.Out, &shown)
			if err := d.Pod(ctx, p); err != nil {
				return err
			}
		}
	}
	err := errors.Join(missing...)
	if err != nil {
		d.Warn.WarnOfManifests()
	} else if shown == 0 {
		d.Warn.SayNone(s)
	}
	return err
}

// gap separates what is printed next from what was printed before, and counts it.
func gap(out io.Writer, shown *int) {
	if *shown > 0 {
		fmt.Fprintln(out)
	}
	*shown++
}

// workload prints the details of a workload, what has happened to it, and its pods.
func (d *Printer) workload(ctx context.Context, o query.Object, shown *int) error {
	pods := o.Pods
	var err error
	switch object := o.Object.(type) {
	case *batchv1.CronJob:
		d.cronJob(o, object)
		pods, err = nil, d.eventsOf(o.ID)
	case *batchv1.Job:
		d.job(o, object)
		err = d.jobEvents(object, pods)
	default:
		d.replicas(o)
		err = d.eventsOf(o.ID)
	}
	if err != nil {
		return err
	}
	for _, p := range pods {
		gap(d.Out, shown)
		if err := d.Pod(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// origin prints where a Job or CronJob comes from, and what it runs.
func (d *Printer) origin(o query.Object) {
	d.line(0, "Manifest", o.Manifest)
	_, images := workload.Names(workload.Containers(o.Object, o.Pods))
	d.line(0, "Images", strings.Join(images, ", "))
}

// eventsOf prints the events of a workload.
func (d *Printer) eventsOf(id workload.ID) error {
	records, err := event.Read(d.Dirs)
	records = slices.DeleteFunc(records, func(r event.Record) bool {
		return r.Kind != string(id.Kind) || r.Namespace != id.Key.Namespace || r.Name != id.Key.Name
	})
	return errors.Join(err, d.events(records, time.Now()))
}

// replicas prints the details of a Deployment, ReplicaSet, StatefulSet or DaemonSet, in the words of kubectl describe
// where it has them.
func (d *Printer) replicas(o query.Object) {
	d.line(0, "Name", o.Key.Name)
	d.line(0, "Namespace", o.Key.Namespace)
	d.line(0, "Kind", string(o.Kind))
	d.line(0, "Manifest", o.Manifest)
	if since := metav1.NewTime(o.Since); !o.Since.IsZero() {
		d.line(0, "CreationTimestamp", when(&since))
	}
	d.line(0, "Labels", pairs(o.Labels()))
	selector, strategy, rolling := updates(o.Object)
	if selector != nil {
		d.line(0, "Selector", metav1.FormatLabelSelector(selector))
	}
	s := o.Summary
	d.line(0, "Replicas", fmt.Sprintf("%d desired | %d updated | %d total | %d available | %d unavailable",
		s.Desired, s.Updated, s.Current, s.Available, max(s.Desired, s.Current)-s.Available))
	phases := map[v1.PodPhase]int{}
	for _, p := range o.Pods {
		phases[p.Status.Phase]++
	}
	d.line(0, "Pods Status", fmt.Sprintf("%d Running / %d Waiting / %d Succeeded / %d Failed",
		phases[v1.PodRunning], phases[v1.PodPending], phases[v1.PodSucceeded], phases[v1.PodFailed]))
	d.line(0, "StrategyType", strategy)
	if strategy != "" {
		d.line(0, "MinReadySeconds", fmt.Sprint(int(workload.MinReady(o.Object).Seconds())))
	}
	d.line(0, "RollingUpdateStrategy", rolling)
	if deployment, is := o.Object.(*appsv1.Deployment); is {
		var all []v1.PodCondition
		for _, c := range deployment.Status.Conditions {
			all = append(all, v1.PodCondition{
				Type: v1.PodConditionType(c.Type), Status: c.Status, Reason: c.Reason, Message: c.Message,
			})
		}
		d.conditions(all)
	}
}

// updates returns the selector of a workload, the type of its update strategy, and how many pods may be missing or too
// many during an update. Each is nil or "" if the workload has none.
func updates(object runtime.Object) (selector *metav1.LabelSelector, strategy, rolling string) {
	switch o := object.(type) {
	case *appsv1.Deployment:
		selector, strategy = o.Spec.Selector, string(o.Spec.Strategy.Type)
	case *appsv1.ReplicaSet:
		selector = o.Spec.Selector
	case *appsv1.StatefulSet:
		selector, strategy = o.Spec.Selector, string(o.Spec.UpdateStrategy.Type)
	case *appsv1.DaemonSet:
		selector, strategy = o.Spec.Selector, string(o.Spec.UpdateStrategy.Type)
	}
	surge, unavailable := workload.RollingUpdate(object)
	if unavailable != nil {
		rolling = unavailable.String() + " max unavailable"
	}
	if surge != nil {
		rolling += ", " + surge.String() + " max surge"
	}
	return selector, strategy, rolling
}
