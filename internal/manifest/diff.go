package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/pod"
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

// Change is the effect of a desired state on one pod.
type Change struct {
	Action Action
	Key    pod.Key
	// Origin is the origin of the desired pod; if the pod is not desired, the origin of the running
	// one.
	Origin Origin
	// Fields are the paths of the first few fields that make a Replace necessary, or that an Update
	// changes.
	Fields []string
	// Restarts are the containers that an Update restarts, because their resizePolicy requires it.
	Restarts []string
	// Volumes are the volumes whose files an Update changes.
	Volumes []string
	// Why is the reason for a Keep or an Update of a pod that is not in Desired.Pods.
	Why error
}

// Changes returns a Change for each pod that is desired or exists, in order of namespace and name.
// running has the manifests of the existing pods that may be removed or replaced.
func Changes(d Desired, running map[pod.Key]*v1.Pod) []Change {
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

func change(d Desired, key pod.Key, there *v1.Pod) Change {
	wanted := d.Pods[key]
	c := Change{Key: key}
	switch {
	case there == nil:
		c.Action, c.Origin = Create, OriginOf(wanted)
	case wanted != nil && SameRun(there, wanted):
		c.Action, c.Origin = Keep, OriginOf(wanted)
		c.adopts(there, wanted)
	case wanted != nil:
		c.Action, c.Origin, c.Fields = Replace, OriginOf(wanted), changedFields(there, wanted)
	case d.Keeps(there):
		c.Action, c.Origin, c.Why = Keep, OriginOf(there), d.whyKept(there)
	default:
		c.Action, c.Origin = Remove, OriginOf(there)
	}
	return c
}

// whyKept returns the reason why a pod that is not in d.Pods is not removed.
func (d Desired) whyKept(p *v1.Pod) error {
	for _, problem := range d.Problems {
		if problem.Origin == OriginOf(p) || problem.keeps(p) {
			return problem.Err
		}
	}
	return errors.New("nothing is removed until every source of manifests can be read")
}

// adopts makes c an Update if the edit of a pod that continues to run changes anything.
func (c *Change) adopts(there, wanted *v1.Pod) {
	if hash := manifestHash(there); hash != "" && hash == manifestHash(wanted) {
		// The manifest has been applied, except for resources that the machine could not give yet.
		// Everything else that differs was only derived by another version of podrun.
		wanted = pod.Sized(there, wanted)
	}
	from, to := edited(there), edited(wanted)
	if equality.Semantic.DeepEqual(from, to) {
		return
	}
	c.Action, c.Fields = Update, fieldsThatDiffer(from, to)
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
		AnnotationHash, AnnotationManifestHash, AnnotationSource, AnnotationSeen, AnnotationManifest, AnnotationConfig,
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

// changedFields returns the paths of the first fields whose difference needs new containers.
func changedFields(a, b *v1.Pod) []string {
	bare := func(p *v1.Pod) *v1.Pod {
		bare := replacedByEdit(p)
		bare.Status = v1.PodStatus{}
		if pod.QOS(a) != pod.QOS(b) {
			bare.Spec = p.Spec // replacedByEdit omits the resources, which cause the difference in QoS class
		}
		if !sameConfig(a, b) {
			metav1.SetMetaDataAnnotation(&bare.ObjectMeta, AnnotationConfig, p.Annotations[AnnotationConfig])
		}
		return bare
	}
	return fieldsThatDiffer(bare(a), bare(b))
}

// fieldsThatDiffer returns the paths of the first fields in which a and b differ.
func fieldsThatDiffer(a, b *v1.Pod) []string {
	const most = 3
	tree := func(p *v1.Pod) map[string]any {
		var tree map[string]any
		text, err := json.Marshal(p)
		if err == nil {
			err = json.Unmarshal(text, &tree)
		}
		if err != nil { // cannot happen: every pod can be encoded as JSON
			return nil
		}
		return tree
	}
	fields := differences(nil, tree(a), tree(b), "")
	if len(fields) > most {
		fields = append(fields[:most], fmt.Sprintf("%d more", len(fields)-most))
	}
	return fields
}

// differences adds the paths of the innermost values in which a and b differ.
func differences(to []string, a, b any, path string) []string {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok {
			break
		}
		keys := map[string]bool{}
		for key := range a {
			keys[key] = true
		}
		for key := range b {
			keys[key] = true
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			to = differences(to, a[key], b[key], strings.TrimPrefix(path+"."+key, "."))
		}
		return to
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			break
		}
		for i := range a {
			to = differences(to, a[i], b[i], path+"["+strconv.Itoa(i)+"]")
		}
		return to
	}
	if !reflect.DeepEqual(a, b) {
		to = append(to, path)
	}
	return to
}
