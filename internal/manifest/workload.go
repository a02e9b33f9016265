package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest/decode"
	"podrun.io/podrun/internal/manifest/defaults"
	"podrun.io/podrun/internal/manifest/documents"
	"podrun.io/podrun/internal/manifest/objects"
	"podrun.io/podrun/internal/manifest/support"
	"podrun.io/podrun/internal/manifest/validate"
	"podrun.io/podrun/internal/manifest/validate/workloads"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
)

// workload loads a workload. Its template is loaded as a pod is.
func (l *loader) workload(o object, kind string) {
	d := documents.New(workload.Kind(kind))
	written := decode.Canonical(documents.Identity(o.value))
	outer := findings{errs: decode.Check(o.value, d.Type(), "", misplacedFields(d.Path+"."))}
	refused, ignored := support.CheckWorkload(o.value, d.Type())
	outer.errs, outer.warnings = append(outer.errs, refused...), ignored
	if err := decode.Into(o.value, d.Object); err != nil && len(outer.errs) == 0 {
		outer.errs = append(outer.errs, decode.Error{Message: err.Error()})
	}
	d.SetDefaults()
	w := d.Workload()
	p := d.Pod(w)
	inner := findings{}
	outer.errs, inner.errs = decode.Cut(outer.errs, d.Path)
	outer.warnings, inner.warnings = decode.Cut(outer.warnings, d.Path)
	l.ignore(p, &inner)
	defaults.Set(p)
	more := d.Validate(w, p)
	more = append(more, documents.OutOfTemplate(d.Path, validate.Pod(p, l.NodeName, l.fullName(p.Name)), more)...)
	inner.drop(p)
	outer.errs = append(outer.errs, decode.Within(inner.errs, d.Path)...)
	outer.warnings = append(outer.warnings, decode.Within(inner.warnings, d.Path)...)
	if k := workload.Kind(kind); p.Annotations[pod.AnnotationAutoUpdate] != "" &&
		(k == workload.Job || k == workload.CronJob) {
		outer.warnings = append(outer.warnings, decode.Error{
			Path:    d.Path + ".metadata.annotations[" + pod.AnnotationAutoUpdate + "]",
			Message: "has no effect: a pod of a Job keeps its image until it ends",
		})
	}
	l.strict(&outer)
	if why := documents.Alone(w, p); why != "" {
		outer.warnings = append(outer.warnings, decode.Error{Path: "spec.strategy", Message: why})
	}
	errs := withUnexplained(outer.errs, more)
	d.Template.Spec = *p.Spec.DeepCopy()
	p.Name = w.Key.Name
	setIdentity(p, written, l.LoadOptions)
	annotateWarnings(p, outer.warnings)
	Annotate(p, workload.Annotation, w.String())
	w.Manifest, w.Template, w.Suffix = l.Origin.Path, p, strings.TrimPrefix(p.Name, w.Key.Name)
	w.Document = Digest(written, "\nhost:", l.NodeName)
	key := pod.KeyOf(p)
	if w.Key.Name == "" {
		key = pod.Key{}
	}
	for _, e := range errs {
		l.failAt(o, e.Path, e.Message, key)
	}
	if len(errs) > 0 || l.forbidden(o, d.Path+".", p, key) || l.tooMany(o, w, key) ||
		l.sameName(o, w, key) {
		return
	}
	l.loaded.Workloads = append(l.loaded.Workloads, w)
	l.warn(o, outer.warnings, key)
}

// tooMany reports whether the manifest's workloads have too many pods with this one; then it adds an error. A workload
// has few bytes, whatever the number of its pods.
func (l *loader) tooMany(o object, w *workload.Workload, key pod.Key) bool {
	if l.replicas += w.Replicas; w.MakesJobs() && w.Replicas == 0 {
		l.replicas++ // it is recorded too
	}
	if l.replicas <= workload.MaxReplicas {
		return false
	}
	l.failAt(o, "spec", fmt.Sprintf("podrun makes at most %d pods of a manifest's workloads; with this one there are %d",
		workload.MaxReplicas, l.replicas), key)
	return true
}

// sameName reports whether the manifest has a pod of one of the workload's names already; then it adds
// an error. Else it records the names. The pods of Jobs get other names then, so only the Jobs themselves count.
func (l *loader) sameName(o object, w *workload.Workload, key pod.Key) bool {
	if name := (Name{Kind: string(w.Kind), Key: w.Key}); w.MakesJobs() {
		twice := l.objects[name]
		if l.objects[name] = true; twice {
			l.failAt(o, "metadata.name", fmt.Sprintf("Duplicate value: %q: is given twice", w.Key.Name), key)
		}
		return twice
	}
	line := o.doc.LineOf(o.at("metadata.name"))
	for _, name := range w.Names() {
		one := pod.Key{Namespace: w.Key.Namespace, Name: name + w.Suffix}
		if first, twice := l.seen[one]; twice {
			l.failAt(o, "metadata.name", fmt.Sprintf("Duplicate value: %q: what is at line %d makes a pod %q too",
				w.Key.Name, first, name), key)
			return true
		}
		l.seen[one] = line
	}
	return false
}

// claim loads a PersistentVolumeClaim. A claim needs no manifest, so that nothing is left of a valid one but the
// PersistentVolume that it names.
func (l *loader) claim(o object) {
	t := reflect.TypeFor[v1.PersistentVolumeClaim]()
	f := findings{errs: decode.Check(o.value, t, "", nil)}
	refused, ignored := support.CheckWorkload(o.value, t)
	f.errs, f.warnings = append(f.errs, refused...), ignored
	l.strict(&f)
	c := &v1.PersistentVolumeClaim{}
	if err := decode.Into(o.value, c); err != nil && len(f.errs) == 0 {
		f.errs = append(f.errs, decode.Error{Message: err.Error()})
	}
	defaults.Claim(c)
	errs := withUnexplained(f.errs, workloads.Claim(c))
	for _, e := range errs {
		l.failAt(o, e.Path, e.Message, pod.Key{})
	}
	loaded := Object{objects.Object{Claim: c}, l.Origin}
	if len(errs) == 0 && l.objects[loaded.Name()] {
		l.failAt(o, "metadata.name", fmt.Sprintf("Duplicate value: %q: is given twice", c.Name), pod.Key{})
	}
	l.objects[loaded.Name()] = true
	l.loaded.Objects = append(l.loaded.Objects, loaded)
	l.warn(o, f.warnings, pod.Key{})
}

// workloadDefinition is a workload as one source defines it.
type workloadDefinition struct {
	workload *workload.Workload
	definition
}

// expand returns the pods of the workloads of all sources, as definitions, with a Problem for each
// workload that is defined twice. It sets d.Workloads and d.Retained. pods are the definitions of pods.
func (s Sources) expand(d *Desired, pods map[pod.Key][]definition) []definition {
	defined := map[workload.ID][]workloadDefinition{}
	waits := false
	for _, name := range s.Order {
		last, ok := s.Last[name]
		waits = waits || !ok && s.Failing[name] == nil
		all := slices.Clone(last.Workloads)
		slices.SortStableFunc(all, func(a, b *workload.Workload) int {
			return cmp.Compare(OriginOf(a.Template).Path, OriginOf(b.Template).Path)
		})
		for _, w := range all {
			defined[w.ID] = append(defined[w.ID], workloadDefinition{w, definition{w.Template, waits}})
		}
	}
	var used []*workload.Workload
	var waiting []bool
	for _, id := range slices.SortedFunc(maps.Keys(defined), compareIDs) {
		var plain []definition
		for _, one := range defined[id] {
			plain = append(plain, one.definition)
		}
		at := s.choose(defined[id][0].workload.First(), plain)
		if at < 0 {
			continue
		}
		w := defined[id][at].workload
		used, waiting = append(used, w), append(waiting, defined[id][at].waits)
		for i, one := range defined[id] {
			if from := OriginOf(one.pod); i != at && from != OriginOf(w.Template) {
				err := &DuplicateError{Kind: string(id.Kind), Key: id.Key, Used: OriginOf(w.Template), Not: from}
				d.Problems = append(d.Problems, Problem{Origin: from, Key: pod.KeyOf(one.pod), Err: err})
			}
		}
	}
	s.Recorded.Reserved = func(key pod.Key) bool { return len(pods[key]) > 0 }
	plan := workload.Expand(used, s.Recorded)
	d.Workloads, d.Retained, d.Histories = append(slices.Clone(used), plan.Made...), plan.Retained, plan.Histories
	d.Next, d.Arrived = plan.Next, map[pod.Key]bool{}
	for _, w := range d.Workloads {
		if w.Kind == workload.Job {
			history := d.Jobs[w.ID]
			d.Arrived[pod.KeyOf(w.Template)] = history != nil && history.Complete()
		}
	}
	s.keepHistories(d)
	var made []definition
	for _, instance := range plan.Pods {
		w := instance.Workload
		made = append(made, definition{Identified(instance), waiting[slices.Index(used, cmp.Or(w.Owner, w))]})
	}
	return made
}

// Summarize counts the pods of a workload of d.
func (d Desired) Summarize(w *workload.Workload, pods []*v1.Pod, now time.Time) workload.Summary {
	seen, _ := time.Parse(time.RFC3339, w.Template.Annotations[AnnotationSeen]) // else it is not known
	return workload.Summarize(workload.State{
		Object: w.Object, Desired: len(w.Names()), Pods: pods, Hash: ManifestHash(w.Template), HashOf: ManifestHash,
		Seen: seen, Outcome: w.Outcome(d.Histories, ManifestHash), Now: now,
	})
}

// Identified returns the pod of a workload with its UID.
func Identified(one workload.Instance) *v1.Pod {
	p, template := one.Pod, one.Workload.Template
	switch {
	case one.Run != "":
		SetUID(p, pod.UID(Digest([]byte(one.Run), "\npod:", p.Name)))
	case p.Name != template.Name:
		SetUID(p, pod.UID(Digest([]byte(template.UID), "\npod:", p.Name)))
	}
	return p
}

// keepHistories adds the recorded histories of Jobs and CronJobs that no manifest has, as long as one may be in a
// manifest that cannot be read, or has pods. Others are over for good: the same Job is a new one then.
func (s Sources) keepHistories(d *Desired) {
	owned := map[workload.ID]bool{}
	for key, owner := range s.Recorded.Exists {
		kind, name, _ := strings.Cut(owner, "/")
		owned[workload.ID{Kind: workload.Kind(kind), Key: pod.Key{Namespace: key.Namespace, Name: name}}] = true
	}
	keeps := func(id workload.ID) bool {
		return !d.Complete || owned[id] || slices.ContainsFunc(d.Problems, func(p Problem) bool {
			name, _, _ := strings.Cut(strings.TrimPrefix(p.Key.Name, id.Key.Name), "-")
			return p.Blind || p.Key.Namespace == id.Key.Namespace && name == ""
		})
	}
	kept := map[workload.ID]bool{} // the Jobs of CronJobs that are kept
	for id, history := range s.Recorded.CronJobs {
		if d.CronJobs[id] != nil || !keeps(id) && !slices.ContainsFunc(id.Made(history), keeps) {
			continue
		}
		d.CronJobs[id] = history
		for _, made := range id.Made(history) {
			kept[made] = true
		}
	}
	for id, history := range s.Recorded.Jobs {
		if d.Jobs[id] == nil && (kept[id] || keeps(id)) {
			d.Jobs[id] = history
		}
	}
}

func compareIDs(a, b workload.ID) int {
	return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.Kind, b.Kind))
}
