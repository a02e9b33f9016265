// Package workload decides which pods the workloads of the manifests need: Deployments, ReplicaSets,
// StatefulSets, DaemonSets, Jobs and CronJobs. It is a stage between the documents of all sources and the pods
// that are desired: (workloads, what is recorded, now) -> pods. From there on these are pods like
// others. What becomes of the runs of Jobs is package jobs' decision, and which Jobs a CronJob has package
// cronjobs'.
//
// It is pure: it reads no manifest, starts nothing, and remembers nothing.
//
// Begin reading at Expand.
package workload

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload/cronjobs"
	"podrun.io/podrun/internal/workload/jobs"
	"podrun.io/podrun/internal/workload/revisions"
	"podrun.io/podrun/internal/workload/rollouts"
)

// Annotation is set on the pods of a workload: the workload's kind and name, such as Deployment/web.
const Annotation = pod.AnnotationWorkload

// MaxReplicas is the largest number of pods of all workloads of a manifest together, which protects the machine from a
// number with a digit too many, and podrun from manifests of a few KB with millions of pods.
const MaxReplicas = 1000

// Kind is the kind of a workload, as manifests have it.
type Kind string

// The kinds of workloads.
const (
	// Pod is not the kind of a workload, but of what has revisions as a workload has.
	Pod         Kind = "Pod"
	CronJob     Kind = "CronJob"
	DaemonSet   Kind = "DaemonSet"
	Deployment  Kind = "Deployment"
	Job         Kind = "Job"
	ReplicaSet  Kind = "ReplicaSet"
	StatefulSet Kind = "StatefulSet"
)

// ID identifies a workload. It is unique in the desired state.
type ID struct {
	Kind Kind
	// Key has the name in the manifest, without the node's name.
	Key pod.Key
}

// Workload is a document from which pods are made. It must not be modified after it was loaded.
type Workload struct {
	ID
	// Object is the document with its defaults, a *appsv1.Deployment for example.
	Object runtime.Object
	// Template is the pod that the template describes, complete as one from a manifest of its own
	// is, under the name of the workload.
	Template *v1.Pod
	// Document identifies what a run of a Job is of: what the document says and the node, whatever file has it.
	Document string
	// Manifest is the file or URL that the document was read from, and Suffix ends the names of all pods of the node.
	Manifest, Suffix string
	// Replicas is the number of pods, 1 for a DaemonSet, and Start the index of the first one.
	Replicas, Start int
	// Ordered starts each pod only when the one before it is ready, and stops the last one first.
	Ordered bool
	// Claims are the names of the template's volumes of which each pod has a claim of its own.
	Claims []string
	// PerBoot makes a Job run again after each boot, and AtBoot a CronJob once in each boot.
	PerBoot, AtBoot bool
	// Owner is the CronJob that has made a Job; nil if none has.
	Owner *Workload
}

// MakesJobs reports that the pods are those of Jobs.
func (w *Workload) MakesJobs() bool { return w.Kind == Job || w.Kind == CronJob }

// Names returns the names of the pods in manifests, in order.
func (w *Workload) Names() []string {
	var names []string
	for i := range w.Replicas {
		names = append(names, w.name(w.Start+i))
	}
	return names
}

// Last returns the name in manifests of the last pod, of the first one if there are none.
func (w *Workload) Last() string {
	return w.name(w.Start + max(w.Replicas, 1) - 1)
}

// name returns the name in manifests of the pod with an index. The one pod of a DaemonSet has none. Those of a CronJob
// stand for the pods of its Jobs: they are as long.
func (w *Workload) name(index int) string {
	switch w.Kind {
	case DaemonSet:
		return w.Key.Name
	case CronJob:
		return fmt.Sprintf("%s-%d-%d", w.Key.Name, 10_000_000, index)
	}
	return fmt.Sprintf("%s-%d", w.Key.Name, index)
}

// Rolling returns how the workload's pods are replaced by and by, and whether they are. Those of a StatefulSet are
// replaced from the last one to the first.
func (w *Workload) Rolling() (rollouts.Strategy, bool) {
	surge, unavailable := RollingUpdate(w.Object)
	if unavailable == nil {
		return rollouts.Strategy{}, false
	}
	return rollouts.Scaled(surge, unavailable, w.Replicas, MinReady(w.Object)), true
}

// RollingUpdate returns how many pods of a workload may be too many and how many may be missing during an update; nil
// if they are not replaced by and by.
func RollingUpdate(o runtime.Object) (surge, unavailable *intstr.IntOrString) {
	switch o := o.(type) {
	case *appsv1.Deployment:
		if r := o.Spec.Strategy.RollingUpdate; r != nil {
			surge, unavailable = r.MaxSurge, r.MaxUnavailable
		}
	case *appsv1.StatefulSet:
		if o.Spec.UpdateStrategy.Type != appsv1.RollingUpdateStatefulSetStrategyType {
			break
		}
		// Kubernetes leaves rollingUpdate empty if only the type is given, and replaces one pod at a time then.
		one := intstr.FromInt32(1)
		unavailable = &one
		if r := o.Spec.UpdateStrategy.RollingUpdate; r != nil && r.MaxUnavailable != nil {
			unavailable = r.MaxUnavailable
		}
	case *appsv1.DaemonSet:
		if r := o.Spec.UpdateStrategy.RollingUpdate; r != nil {
			surge, unavailable = r.MaxSurge, r.MaxUnavailable
		}
	}
	return surge, unavailable
}

// PodKey returns the key of the pod with an index.
func (w *Workload) PodKey(index int) pod.Key {
	return pod.Key{Namespace: w.Key.Namespace, Name: w.name(index) + w.Suffix}
}

// First returns the key of the pod that stands for the workload where a pod is needed.
func (w *Workload) First() pod.Key {
	return w.PodKey(w.Start)
}

// Recorded is what is recorded of the pods on the machine: the input of Expand beside the documents.
type Recorded struct {
	// Exists has the value of Annotation of each pod of a workload that exists.
	Exists map[pod.Key]string
	// Reserved reports that a manifest has a pod of a name, but for those of workloads. It may be nil. A Job makes no
	// pod of such a name.
	Reserved func(pod.Key) bool
	Histories
	// Pods is what is known of the pods of Jobs.
	Pods map[pod.Key]jobs.Observed
	// Running is what is known of the pods of what has revisions, and Tried for how long the revision that is being
	// tried has been.
	Running map[pod.Key]revisions.Observed
	Tried   map[ID]time.Duration
	// Undo asks to go back from revisions.
	Undo map[revisions.Undo]bool
	// Newer are the digests of newer images, which are on this machine, of pods that are updated to them, by reference.
	Newer map[ID]map[string]string
	// Frozen are those whose histories could not be recorded or read: nothing new is decided for them.
	Frozen map[ID]bool
	// Boot is the kernel's boot ID.
	Boot string
	Now  time.Time
	// Requests ask CronJobs for Jobs.
	Requests []cronjobs.Request
	// Clock is what is known of the clock that shows Now. What was recorded by it is in CronJobs.
	Clock cronjobs.Trust
}

// AutoUpdate are the images of a workload, or of a pod, with pod.AnnotationAutoUpdate.
type AutoUpdate struct {
	// Pod is one of the pods.
	Pod *v1.Pod
	// Images are the digests of the images that the pods run or are updated to, by reference.
	Images map[string]string
	// Failed are the digests to which they are not updated, because that did not work, by reference.
	Failed map[string]string
	// Notify says that the pods are not updated.
	Notify bool
}

// Histories are what is recorded of Jobs and CronJobs, and of the revisions of pods and other workloads.
type Histories struct {
	// Jobs has the run of each Job that has begun.
	Jobs      map[ID]*jobs.History
	CronJobs  map[ID]*cronjobs.History
	Revisions map[ID]*revisions.History
}

// Plan is the result of Expand.
type Plan struct {
	// Pods are the pods that should be now.
	Pods []Instance
	// Retained are pods that should not be and that are not removed yet.
	Retained map[pod.Key]bool
	// Made are the Jobs of CronJobs.
	Made []*Workload
	// Histories are recorded before the pods are acted on, those of CronJobs before those of Jobs.
	Histories
	// Next is when to call Expand again even if nothing changes; zero: never.
	Next time.Time
}

// Instance is a pod of a workload. Its UID is that of the template.
type Instance struct {
	Workload *Workload
	Pod      *v1.Pod
	// Run is the run of the Job that the pod belongs to; "" if its workload is none.
	Run string
}

// Expand returns the pods that the workloads need now.
func Expand(all []*Workload, recorded Recorded) Plan {
	plan := Plan{Retained: map[pod.Key]bool{}, Histories: Histories{
		Jobs: map[ID]*jobs.History{}, CronJobs: map[ID]*cronjobs.History{},
	}}
	owner, busy := ownersOf(all, recorded), map[string]int{}
	for _, w := range all {
		busy[w.Manifest] += w.activePods(recorded)
	}
	recorded.Reserved = reservedBy(all, recorded.Reserved)
	for _, w := range all {
		switch w.Kind {
		case Job:
			w.expandJob(recorded, &plan)
			continue
		case CronJob:
			w.expandCronJob(recorded, owner, busy[w.Manifest]-w.activePods(recorded), &plan)
			continue
		}
		plan.Pods = append(plan.Pods, w.pods()...)
		if w.Ordered {
			w.retain(recorded, plan.Retained)
		}
	}
	return plan
}

// reservedBy returns reserved with the names of the pods of workloads that make no Jobs.
func reservedBy(all []*Workload, reserved func(pod.Key) bool) func(pod.Key) bool {
	more := map[pod.Key]bool{}
	for _, w := range all {
		for i := range w.Replicas {
			if !w.MakesJobs() {
				more[w.PodKey(w.Start+i)] = true
			}
		}
	}
	return func(key pod.Key) bool { return more[key] || reserved != nil && reserved(key) }
}

// wakeAt makes Next at most t; zero: it stays.
func (p *Plan) wakeAt(t time.Time) {
	if !t.IsZero() && (p.Next.IsZero() || t.Before(p.Next)) {
		p.Next = t
	}
}

func (w *Workload) pods() []Instance {
	var all []Instance
	for i := range w.Replicas {
		all = append(all, Instance{Workload: w, Pod: w.pod(w.Start + i)})
	}
	return all
}

// pod returns the pod with an index.
func (w *Workload) pod(index int) *v1.Pod {
	name := w.name(index)
	p := w.Template.DeepCopy()
	p.Name = name + w.Suffix
	if w.Kind != StatefulSet {
		return p
	}
	label(p, "apps.kubernetes.io/pod-index", strconv.Itoa(index))
	label(p, "statefulset.kubernetes.io/pod-name", name)
	p.Spec.Hostname = name
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		for _, claim := range w.Claims {
			if v.Name == claim {
				v.PersistentVolumeClaim.ClaimName = claim + "-" + name
			}
		}
	}
	if w.Ordered && index > w.Start {
		after := []string{w.name(index - 1)}
		if given := p.Annotations[pod.AnnotationAfter]; given != "" {
			after = append(after, given)
		}
		p.Annotations[pod.AnnotationAfter] = strings.Join(after, ",")
	}
	return p
}

func label(p *v1.Pod, name, value string) {
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	p.Labels[name] = value
}

// retain adds the pods of an ordered workload that wait for their end: those beyond its replicas,
// except the last one, which ends first.
func (w *Workload) retain(recorded Recorded, into map[pod.Key]bool) {
	last, lastKey := -1, pod.Key{}
	var beyond []pod.Key
	for key, owner := range recorded.Exists {
		index, ok := w.index(key)
		if owner != w.String() || key.Namespace != w.Key.Namespace || !ok {
			continue
		}
		if index >= w.Start && index < w.Start+w.Replicas {
			continue
		}
		beyond = append(beyond, key)
		if index > last {
			last, lastKey = index, key
		}
	}
	for _, key := range beyond {
		if key != lastKey {
			into[key] = true
		}
	}
}

// index returns the index in the name of a pod, and whether it has one.
func (w *Workload) index(key pod.Key) (int, bool) {
	text, ok := strings.CutPrefix(strings.TrimSuffix(key.Name, w.Suffix), w.Key.Name+"-")
	index, err := strconv.Atoi(text)
	return index, ok && err == nil && index >= 0
}

// Compare orders workloads by namespace, name and kind.
func (id ID) Compare(other ID) int {
	return cmp.Or(id.Key.Compare(other.Key), cmp.Compare(id.Kind, other.Kind))
}

// String returns the value of Annotation.
func (id ID) String() string { return string(id.Kind) + "/" + id.Key.Name }

// Of returns the workload that a pod belongs to, and whether it belongs to one.
func Of(p *v1.Pod) (ID, bool) {
	kind, name, ok := strings.Cut(p.Annotations[Annotation], "/")
	return ID{Kind: Kind(kind), Key: pod.Key{Namespace: p.Namespace, Name: name}}, ok
}

// Same reports whether two pods belong to the same workload, or both to none.
func Same(p, other *v1.Pod) bool {
	a, _ := Of(p)
	b, _ := Of(other)
	return a == b
}
