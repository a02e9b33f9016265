package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/revisions"
)

// DuplicateError reports that a pod, ConfigMap, Secret or workload is defined twice, and that the other
// definition is used.
type DuplicateError struct {
	// Kind is ConfigMap, Secret or the kind of a workload; "" stands for pod.
	Kind string
	Key  pod.Key
	// Used is the origin of the definition that is used, Not the origin of the one that is not.
	Used, Not Origin
}

// Message returns the error without the path of the file that is not used.
func (e *DuplicateError) Message() string {
	return fmt.Sprintf("%s %s is also in %s, which is used", cmp.Or(e.Kind, "pod"), e.Key, e.Used.Path)
}

func (e *DuplicateError) Error() string { return e.Not.Path + ": " + e.Message() }

// Sources is the state of all sources: the input of Merge.
type Sources struct {
	// Order has the names of all sources in order of precedence, the highest first.
	Order []string
	// Last has the last good snapshot of each source that was read at least once.
	Last map[string]Snapshot
	// Failing has the error of each source that cannot be read now.
	Failing map[string]error
	// Kinds are the kinds of the sources in Last and Failing. A source that is not in it has the kind
	// of files.
	Kinds map[string]SourceKind
	// Running has the origin of each running pod.
	Running map[pod.Key]Origin
	// Recorded is what is recorded of the pods of workloads.
	Recorded workload.Recorded
}

// Merge merges the snapshots of all sources into one desired state. Of a pod that is defined twice it uses the
// definition that the pod runs from, else the one of the first source in Order, else of the first file by name. A pod
// that does not run therefore waits until each source before the one that defines it was read or has failed. Merge does
// not change s.
func Merge(s Sources) Desired {
	d := Desired{Pods: map[pod.Key]*v1.Pod{}, GivenUIDs: s.givenUIDs(), Complete: true}
	definitions := map[pod.Key][]definition{}
	waits := false // a source so far has neither been read nor failed
	for _, name := range s.Order {
		last, ok := s.Last[name]
		before := len(d.Problems)
		if !ok {
			d.Complete = false
		}
		if err := s.Failing[name]; err != nil {
			d.Problems = append(d.Problems, Problem{
				Origin: Origin{Source: s.kind(name).Name, Path: name},
				Blind:  !ok,
				Err:    err,
			})
		}
		d.Problems = append(d.Problems, last.Problems...)
		for i := range d.Problems[before:] {
			d.Problems[before+i].Logged = s.kind(name).LogsProblems
		}
		if kind := s.kind(name).Name; (ok || s.Failing[name] != nil) && !slices.Contains(d.Kinds, kind) {
			d.Kinds = append(d.Kinds, kind)
		}
		d.Warnings = append(d.Warnings, last.Warnings...)
		waits = waits || !ok && s.Failing[name] == nil
		pods := slices.Clone(last.Pods)
		slices.SortStableFunc(pods, func(a, b *v1.Pod) int { return cmp.Compare(OriginOf(a).Path, OriginOf(b).Path) })
		for _, p := range pods {
			definitions[pod.KeyOf(p)] = append(definitions[pod.KeyOf(p)], definition{p, waits})
		}
	}
	for _, one := range s.expand(&d, definitions) {
		definitions[pod.KeyOf(one.pod)] = append(definitions[pod.KeyOf(one.pod)], one)
	}
	for _, key := range slices.SortedFunc(maps.Keys(definitions), pod.Key.Compare) {
		at := s.choose(key, definitions[key])
		if at < 0 {
			continue
		}
		used := definitions[key][at].pod
		d.Pods[key] = used
		for i, o := range definitions[key] {
			p := o.pod
			// It is no other one if two sources read one file: a directory and the file in it.
			if i != at && (OriginOf(p) != OriginOf(used) || !workload.Same(p, used)) {
				err := &DuplicateError{Key: key, Used: OriginOf(used), Not: OriginOf(p)}
				d.Problems = append(d.Problems, Problem{Origin: OriginOf(p), Key: key, Err: err})
			}
		}
	}
	d.Problems = append(d.Problems, s.removeDuplicateUIDs(d)...)
	d.Problems = append(d.Problems, cycles(d)...)
	s.mergeObjects(&d)
	s.annotateConfig(&d)
	return d
}

// removeDuplicateUIDs removes pods whose metadata.uid is the one of another pod, which happens if a manifest
// is copied, and returns a Problem for each: the state of a pod is stored under its UID, so two
// pods cannot share one. The pod that runs stays, else the first by namespace and name. A UID to which a pod may be
// rolled back is that pod's.
func (s Sources) removeDuplicateUIDs(d Desired) []Problem {
	pods := d.Pods
	rank := func(key pod.Key) int {
		if from, runs := s.Running[key]; runs && from == OriginOf(pods[key]) {
			return 0
		}
		return 1
	}
	keys := slices.SortedFunc(maps.Keys(pods), func(a, b pod.Key) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Compare(b))
	})
	var problems []Problem
	owners := s.formerUIDs(d)
	for _, key := range keys {
		p := pods[key]
		first, taken := owners[p.UID]
		if !taken || p.UID == "" || first == key {
			owners[p.UID] = key
			continue
		}
		in := "" // a pod of a former revision is in no file
		if other := pods[first]; other != nil {
			in = " in " + OriginOf(other).Path
		}
		err := &InvalidError{Errors: []FieldError{{
			File:  OriginOf(p).Path,
			Field: "metadata.uid",
			Key:   key,
			Message: fmt.Sprintf("Duplicate value: %q: is also that of pod %s%s; leave it out of one of them",
				p.UID, first, in),
		}}}
		// Blind retains the pod if it runs nevertheless: removing it would remove state under the
		// UID of the other.
		problems = append(problems, Problem{Origin: OriginOf(p), Key: key, Blind: true, Err: err})
		delete(pods, key)
	}
	return problems
}

// formerUIDs returns the pods of revisions to which those that are desired may go back, by UID.
func (s Sources) formerUIDs(d Desired) map[pod.UID]pod.Key {
	all := map[pod.UID]pod.Key{}
	add := func(w workload.Workload, h *revisions.History) {
		for _, r := range []*revisions.Revision{h.Good, h.Previous} {
			if r == nil {
				continue
			}
			w.Template = r.Template
			all[r.Template.UID] = pod.KeyOf(r.Template)
			for _, one := range workload.Expand([]*workload.Workload{&w}, workload.Recorded{}).Pods {
				p := Identified(one)
				all[p.UID] = pod.KeyOf(p)
			}
		}
	}
	for id, h := range s.Recorded.Revisions {
		if id.Kind == workload.Pod && d.Pods[id.Key] != nil {
			add(workload.Workload{}, h)
		}
	}
	for _, w := range d.Workloads {
		if h := s.Recorded.Revisions[w.ID]; h != nil {
			add(*w, h)
		}
	}
	return all
}

// definition is a pod as one source defines it.
type definition struct {
	pod *v1.Pod
	// waits is set if an earlier source, which may define the pod too, has not been read yet.
	waits bool
}

// choose returns the index of the definition to use. It returns -1 while the source that the pod runs
// from has not been read, or, for a pod that does not run, while an earlier source than the first
// definition's has not.
func (s Sources) choose(key pod.Key, definitions []definition) int {
	first := 0
	if definitions[0].waits {
		first = -1
	}
	from, runs := s.Running[key]
	if !runs {
		return first
	}
	if i := slices.IndexFunc(definitions, func(o definition) bool { return OriginOf(o.pod) == from }); i >= 0 {
		return i
	}
	for _, name := range s.Order {
		_, read := s.Last[name]
		if !read && (from.Path == name || strings.HasPrefix(from.Path, name+"/")) {
			return -1
		}
	}
	return first
}

func (s Sources) kind(source string) SourceKind { return s.Kinds[source].orFile() }

// Record replaces what is known of the snapshot's source.
func (s *Sources) Record(read Snapshot) {
	if s.Kinds == nil {
		s.Last, s.Failing, s.Kinds = map[string]Snapshot{}, map[string]error{}, map[string]SourceKind{}
	}
	s.Kinds[read.Source] = read.Kind
	if read.Err != nil {
		s.Failing[read.Source] = read.Err
		return
	}
	delete(s.Failing, read.Source)
	s.Last[read.Source] = read
}

// Update merges the state of all sources and adopts the result.
func (s *Sources) Update() Desired {
	d := Merge(*s)
	s.Adopt(d)
	return d
}

// Adopt records the origins of the pods that are now desired. Once all sources were read, the origins of pods
// that are no longer desired are dropped.
func (s *Sources) Adopt(d Desired) {
	if d.Complete || s.Running == nil {
		s.Running = map[pod.Key]Origin{}
	}
	for key, p := range d.Pods {
		s.Running[key] = OriginOf(p)
	}
}
