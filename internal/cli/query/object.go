package query

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/workload"
)

// Object is a workload with its pods counted.
type Object struct {
	workload.ID
	// Object is the document with the status that its pods give it. It has no more than a name if only
	// the pods are left.
	Object  runtime.Object
	Summary workload.Summary
	// Pods are those that exist.
	Pods []*v1.Pod
	// Since is when the template was first read, or when a run of a Job began.
	Since time.Time
	// Manifest is the path of the manifest; "" if it is no file or is not known.
	Manifest string
	// PodsOnly reports that only the pods are left.
	PodsOnly bool
}

// Workloads returns the workloads of a kind: those that serve has saved, and those of which only pods
// are left, for example because podrun once made them.
func (r *Reader) Workloads(kind workload.Kind) ([]Object, error) {
	pods, err := r.Settled()
	if err != nil {
		return nil, err
	}
	saved, err := status.Workloads(r.Dirs)
	if err != nil {
		return nil, err
	}
	var all []Object
	has := map[workload.ID]bool{}
	for _, one := range saved {
		id := workload.ID{Kind: one.Kind, Key: pod.Key{Namespace: one.Namespace, Name: one.Name}}
		has[id] = true
		if one.Kind != kind {
			continue
		}
		o, err := savedObject(one, id, pods)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	for _, p := range pods {
		id, ok := workload.Of(p)
		if !ok || id.Kind != kind || has[id] {
			continue
		}
		has[id] = true
		all = append(all, objectOfPods(id, PodsOf(pods, id)))
	}
	slices.SortFunc(all, func(a, b Object) int {
		return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.Kind, b.Kind))
	})
	return all, nil
}

// Object returns a workload, as Workloads does; nil if there is none. pods are all that there are.
func (r *Reader) Object(id workload.ID, pods []*v1.Pod) (*Object, error) {
	saved, err := r.saved(id)
	if err != nil {
		return nil, err
	}
	if saved != nil {
		o, err := savedObject(*saved, id, pods)
		return &o, err
	}
	left := PodsOf(pods, id)
	if len(left) == 0 {
		return nil, nil
	}
	o := objectOfPods(id, left)
	return &o, nil
}

// savedObject returns a workload that serve has saved. pods are all that there are.
func savedObject(saved status.Workload, id workload.ID, pods []*v1.Pod) (Object, error) {
	o := Object{ID: id, Object: newObject(id.Kind), Pods: PodsOf(pods, id), Manifest: saved.Manifest}
	if err := json.Unmarshal(saved.Object, o.Object); err != nil {
		return Object{}, fmt.Errorf("reading %s: %w", id, err)
	}
	o.Since, _ = time.Parse(time.RFC3339, cmp.Or(saved.Since, saved.Seen)) // else its age is not known
	o.Summary = saved.Summarize(o.Object, o.Pods, time.Now())
	return o.complete(), nil
}

// objectOfPods returns a workload of which only pods are left.
func objectOfPods(id workload.ID, pods []*v1.Pod) Object {
	o := Object{ID: id, Object: newObject(id.Kind), Pods: pods, Since: pods[0].CreationTimestamp.Time, PodsOnly: true}
	if job, is := o.Object.(*batchv1.Job); is {
		countPods(&job.Status, pods)
	}
	left := status.Workload{Pods: make([]string, len(pods)), Hash: manifest.ManifestHash(pods[0])}
	o.Summary = left.Summarize(o.Object, pods, time.Now())
	return o.complete()
}

// countPods counts the pods of a Job.
func countPods(s *batchv1.JobStatus, pods []*v1.Pod) {
	for _, p := range pods {
		switch p.Status.Phase {
		case v1.PodSucceeded:
			s.Succeeded++
		case v1.PodFailed:
			s.Failed++
		default:
			s.Active++
		}
	}
}

// Objects returns the workloads of a kind that manifests of the selection have and those with the names, and an error
// for each that does not exist; if neither names any, all that the selection selects by namespace and labels.
func (r *Reader) Objects(kind workload.Kind, s Selection, names []string) (found []Object, missing []error, err error) {
	selects, err := labels.Parse(s.Labels)
	if err != nil {
		return nil, nil, fmt.Errorf("--selector %q: %w", s.Labels, err)
	}
	found, err = r.Workloads(kind)
	if err != nil {
		return nil, nil, err
	}
	keys := s.Of(kind)
	for _, name := range names {
		keys = append(keys, pod.Key{Namespace: s.Namespace, Name: name})
	}
	found = slices.DeleteFunc(found, func(o Object) bool {
		if len(keys) > 0 {
			return !slices.Contains(keys, o.Key)
		}
		return !s.AllNamespaces && o.Key.Namespace != s.Namespace || !selects.Matches(o.Labels())
	})
	for _, key := range keys {
		if !slices.ContainsFunc(found, func(o Object) bool { return o.Key == key }) {
			missing = append(missing, WorkloadNotFound(workload.ID{Kind: kind, Key: key}))
		}
	}
	return found, missing, nil
}

// complete returns the workload with status, name and kind in its document.
func (o Object) complete() Object {
	if m, err := meta.Accessor(o.Object); err == nil {
		m.SetName(o.Key.Name)
		m.SetNamespace(o.Key.Namespace)
		m.SetCreationTimestamp(metav1.NewTime(o.Since))
	}
	workload.SetStatus(o.Object, o.Summary)
	version := schema.GroupVersion{Group: groupOf(o.Kind), Version: "v1"}
	o.Object.GetObjectKind().SetGroupVersionKind(version.WithKind(string(o.Kind)))
	return o
}

// Labels returns the labels of the document.
func (o Object) Labels() labels.Set {
	m, err := meta.Accessor(o.Object)
	if err != nil {
		return nil
	}
	return m.GetLabels()
}

// Resource returns a kind as it is in TYPE/NAME.
func Resource(kind workload.Kind) string {
	return strings.ToLower(string(kind)) + "." + groupOf(kind)
}

// groupOf returns the API group of a kind.
func groupOf(kind workload.Kind) string {
	if kind == workload.Job || kind == workload.CronJob {
		return batchv1.GroupName
	}
	return appsv1.GroupName
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
	case workload.CronJob:
		return &batchv1.CronJob{}
	default:
		return &appsv1.DaemonSet{}
	}
}
