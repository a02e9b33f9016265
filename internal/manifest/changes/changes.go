// Package changes says what a desired state changes on the pods that exist: podrun diff. It is pure.
//
// Begin reading at Of.
package changes

import (
	"errors"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/manifest/edits"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
)

// Action is the effect of a desired state on a pod.
type Action string

// The actions of a Change.
const (
	Create  Action = "create"
	Replace Action = "replace"
	// Update changes a pod whose containers continue to run, except for those in Change.Restarts.
	Update Action = "update"
	Keep   Action = "keep"
	Remove Action = "remove"
)

// Change is the effect of a desired state on one pod, or on a workload beside its pods.
type Change struct {
	Action Action
	// Kind is that of the workload, such as CronJob; "" for a pod.
	Kind string
	Key  pod.Key
	// Origin is the origin of the desired pod; if the pod is not desired, the origin of the running
	// one.
	Origin manifest.Origin
	// NewRun reports that a Replace is that of a pod of a Job, which begins a new run.
	NewRun bool
	// Edits are the first few fields that make a Replace necessary, or that an Update changes. More is the number of
	// those after them.
	Edits []edits.Edit
	More  int
	// Restarts are the containers that an Update restarts, because their resizePolicy requires it.
	Restarts []string
	// Volumes are the volumes whose files an Update changes.
	Volumes []string
	// Why is the reason for a Keep or an Update of a pod that is not in Desired.Pods.
	Why error
}

// Of returns a Change for each pod that is desired or exists, in order of namespace and name.
// running has the manifests of the existing pods that may be removed or replaced.
func Of(d manifest.Desired, running map[pod.Key]*v1.Pod) []Change {
	keys := map[pod.Key]bool{}
	for key := range d.Pods {
		keys[key] = true
	}
	for key := range running {
		keys[key] = true
	}
	var all []Change
	for _, key := range slices.SortedFunc(maps.Keys(keys), pod.Key.Compare) {
		all = append(all, change(d, key, running[key]))
	}
	return all
}

func change(d manifest.Desired, key pod.Key, there *v1.Pod) Change {
	wanted := d.Pods[key]
	c := Change{Key: key}
	switch {
	case there == nil:
		c.Action, c.Origin = Create, manifest.OriginOf(wanted)
	case wanted != nil && manifest.SameRun(there, wanted):
		c.Action, c.Origin = Keep, manifest.OriginOf(wanted)
		c.adopts(there, wanted)
	case wanted != nil:
		c.Action, c.Origin = Replace, manifest.OriginOf(wanted)
		c.setEdits(editsOfReplace(there, wanted))
	case d.Keeps(there):
		c.Action, c.Origin, c.Why = Keep, manifest.OriginOf(there), whyKept(d, there)
	case d.NewRun(there) != nil:
		w := d.NewRun(there)
		c.Action, c.Origin, c.NewRun = Replace, manifest.OriginOf(w.Template), true
		c.setEdits(editsOfReplace(there, w.Like(there)))
	default:
		c.Action, c.Origin = Remove, manifest.OriginOf(there)
	}
	return c
}

// OfDesired returns those of the changes that are of pods, of runs of Jobs, or of workloads, which d names.
func OfDesired(all []Change, d manifest.Desired) []Change {
	return slices.DeleteFunc(slices.Clone(all), func(c Change) bool {
		return d.Pods[c.Key] == nil && !c.NewRun && (c.Kind == "" || c.Action == Remove)
	})
}

// whyKept returns the reason why a pod that is not in d.Pods is not removed.
func whyKept(d manifest.Desired, p *v1.Pod) error {
	for _, problem := range d.Problems {
		if problem.Origin == manifest.OriginOf(p) || problem.Keeps(p) {
			return problem.Err
		}
	}
	return errors.New("nothing is removed until every source of manifests can be read")
}

// adopts makes c an Update if the edit of a pod that continues to run changes anything.
func (c *Change) adopts(there, wanted *v1.Pod) {
	if hash := manifest.ManifestHash(there); hash != "" && hash == manifest.ManifestHash(wanted) {
		// The manifest has been applied, except for resources that the machine could not give yet.
		// Everything else that differs was only derived by another version of podrun.
		wanted = pod.Sized(there, wanted)
	}
	from, to := edited(there), edited(wanted)
	if equality.Semantic.DeepEqual(from, to) {
		return
	}
	c.Action = Update
	c.setEdits(from, to)
	for _, now := range pod.AllContainers(wanted) {
		was := pod.FindContainer(there, now.Name)
		if was != nil && pod.NeedsRestart(now, pod.ResourcesOf(there, was), pod.ResourcesOf(wanted, now)) {
			c.Restarts = append(c.Restarts, now.Name)
		}
	}
}

// edited returns the part of a pod that its manifest decides, without what podrun derives from the
// manifest as a whole, such as its hash and path.
func edited(p *v1.Pod) *v1.Pod {
	e := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels, Annotations: maps.Clone(p.Annotations)}, Spec: p.Spec}
	for _, derived := range []string{
		manifest.AnnotationHash, manifest.AnnotationManifestHash, manifest.AnnotationSource, manifest.AnnotationSeen,
		manifest.AnnotationManifest, manifest.AnnotationConfig, manifest.AnnotationWarnings, workload.Annotation,
		pod.AnnotationPinned,
	} {
		delete(e.Annotations, derived)
	}
	return e
}

// Refreshes records that the files of volumes change in the running pod, by their names.
func (c *Change) Refreshes(volumes []string) {
	if len(volumes) > 0 {
		c.Action, c.Volumes = Update, volumes
	}
}

// editsOfReplace returns the parts of two pods that their manifests decide. One of the differences at least needs new
// containers, and the others come with them.
func editsOfReplace(a, b *v1.Pod) (from, to *v1.Pod) {
	from, to = edited(a), edited(b)
	if !manifest.SameConfig(a, b) {
		manifest.Annotate(from, manifest.AnnotationConfig, a.Annotations[manifest.AnnotationConfig])
		manifest.Annotate(to, manifest.AnnotationConfig, b.Annotations[manifest.AnnotationConfig])
	}
	return from, to
}

// maxEdits is the maximum number of edits of a Change.
const maxEdits = 8

// setEdits sets the edits to the first fields in which a and b differ.
func (c *Change) setEdits(a, b any) {
	c.Edits = edits.Of(a, b)
	if more := len(c.Edits) - maxEdits; more > 0 {
		c.Edits, c.More = c.Edits[:maxEdits], more
	}
}
