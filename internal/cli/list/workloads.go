package list

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	units "k8s.io/apimachinery/pkg/util/duration"

	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/jobs"
)

// listed is a workload with its pods.
type listed struct {
	workload.ID
	object  runtime.Object
	summary workload.Summary
	since   time.Time
}

// Workloads lists the workloads that the arguments name: `deployments NAME...` or `deployment/NAME...`.
func (l *Lister) Workloads(o Options, args []string) error {
	kind, names, _ := query.WorkloadArgs(args)
	all, err := l.workloads(kind)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(w listed) bool {
		return !o.Selection.AllNamespaces && w.Key.Namespace != o.Selection.Namespace ||
			len(names) > 0 && !slices.Contains(names, w.Key.Name)
	})
	var missing []error
	for _, name := range names {
		if !slices.ContainsFunc(all, func(w listed) bool { return w.Key.Name == name }) {
			id := workload.ID{Kind: kind, Key: pod.Key{Namespace: o.Selection.Namespace, Name: name}}
			missing = append(missing, query.WorkloadNotFound(id))
		}
	}
	if len(all) == 0 && o.Format.Tabular() {
		if len(missing) == 0 {
			l.SayNone(o.Selection)
		}
		return errors.Join(missing...)
	}
	var items []printers.Item
	for _, w := range all {
		row := append([]string{w.Key.Name}, w.cells()...)
		items = append(items, printers.Item{
			Name: w.Key.Name, Namespace: w.Key.Namespace, Object: w.object,
			Row: append(row, printers.Age(w.since, time.Now())),
		})
	}
	printer := printers.Items{
		Format: o.Format, NoHeaders: o.NoHeaders, AllNamespaces: o.Selection.AllNamespaces, Kind: string(kind),
		Group: groupOf(kind), Single: len(names) == 1 && len(items) == 1,
		Header: append(append([]string{"NAME"}, workload.Header(kind)...), "AGE"),
	}
	return errors.Join(append([]error{printer.Print(l.Streams.Out, items)}, missing...)...)
}

// workloads returns the workloads of a kind: those that serve has saved, and those of which only pods
// are left, for example because podrun once made them.
func (l *Lister) workloads(kind workload.Kind) ([]listed, error) {
	pods, err := l.Reader.Settled()
	if err != nil {
		return nil, err
	}
	saved, err := status.Workloads(l.Reader.Dirs)
	if err != nil {
		return nil, err
	}
	var all []listed
	has := map[workload.ID]bool{}
	for _, one := range saved {
		id := workload.ID{Kind: one.Kind, Key: pod.Key{Namespace: one.Namespace, Name: one.Name}}
		has[id] = true
		if one.Kind != kind {
			continue
		}
		object := newObject(kind)
		if err := json.Unmarshal(one.Object, object); err != nil {
			return nil, fmt.Errorf("reading %s: %w", id, err)
		}
		since, _ := time.Parse(time.RFC3339, one.Seen) // else its age is not known
		updated := func(p *v1.Pod) bool { return p.Annotations[manifest.AnnotationManifestHash] == one.Hash }
		summary := workload.Summarize(object, len(one.Pods), query.PodsOf(pods, id), updated, time.Now())
		all = append(all, newListed(id, object, summary, since))
	}
	for _, p := range pods {
		id, ok := workload.Of(p)
		if !ok || id.Kind != kind || has[id] {
			continue
		}
		has[id] = true
		of := query.PodsOf(pods, id)
		object, every := newObject(kind), func(*v1.Pod) bool { return true }
		summary := workload.Summarize(object, len(of), of, every, time.Now())
		all = append(all, newListed(id, object, summary, p.CreationTimestamp.Time))
	}
	slices.SortFunc(all, func(a, b listed) int {
		return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.Kind, b.Kind))
	})
	return all, nil
}

func newListed(id workload.ID, object runtime.Object, summary workload.Summary, since time.Time) listed {
	w := listed{ID: id, object: object, summary: summary, since: since}
	workload.SetStatus(object, summary)
	if m, err := meta.Accessor(object); err == nil {
		m.SetName(id.Key.Name)
		m.SetNamespace(id.Key.Namespace)
		m.SetCreationTimestamp(metav1.NewTime(since))
	}
	version := schema.GroupVersion{Group: groupOf(id.Kind), Version: "v1"}
	object.GetObjectKind().SetGroupVersionKind(version.WithKind(string(id.Kind)))
	return w
}

// groupOf returns the API group of a kind.
func groupOf(kind workload.Kind) string {
	if kind == workload.Job {
		return batchv1.GroupName
	}
	return appsv1.GroupName
}

// cells returns the cells of a workload between its name and its age.
func (w listed) cells() []string {
	job, is := w.object.(*batchv1.Job)
	if !is {
		return w.summary.Row(w.Kind)
	}
	duration := ""
	if d, began := jobs.Duration(&job.Status, time.Now()); began {
		duration = units.HumanDuration(d)
	}
	return []string{jobs.State(&job.Status), jobs.Completions(job), duration}
}

// newObject returns an empty object of a kind.
func newObject(kind workload.Kind) runtime.Object {
	switch kind {
	case workload.Deployment:
		return &appsv1.Deployment{}
	case workload.ReplicaSet:
		return &appsv1.ReplicaSet{}
	case workload.StatefulSet:
		return &appsv1.StatefulSet{}
	case workload.Job:
		return &batchv1.Job{}
	default:
		return &appsv1.DaemonSet{}
	}
}
