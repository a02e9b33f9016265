package manifest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// DuplicateError says that a pod, ConfigMap or Secret is offered twice, and that another offer is used.
type DuplicateError struct {
	// Kind is ConfigMap or Secret; "" stands for pod.
	Kind      string
	Key       pod.Key
	Used, Not Origin
}

// Message is the error without the file.
func (e *DuplicateError) Message() string {
	return fmt.Sprintf("%s %s is also in %s, which is used", cmp.Or(e.Kind, "pod"), e.Key, e.Used.Path)
}

func (e *DuplicateError) Error() string { return e.Not.Path + ": " + e.Message() }

// Word is what the sources have said so far.
type Word struct {
	// Order are the names of all sources, the one that counts most first.
	Order []string
	// Last is, for each source that has spoken, what it said when it could last be read.
	Last map[string]Snapshot
	// Failing are the sources that cannot be read now.
	Failing map[string]error
	// Running tells where the running pods were read.
	Running map[pod.Key]Origin
	// Late: a source that has neither spoken nor failed by now holds no pod of a later source back any more.
	Late bool
}

// sourcePatience is how long a source may take to be read for the first time before the pods of the sources after it
// start without it. One that fails holds nothing back; only one that hangs, as a file system, takes that long.
const sourcePatience = 10 * time.Second

// Merge makes one set of all. A pod that is offered twice is taken from where it runs from, else from
// the first source, else from the first file by name; so one that does not run waits until each source before the one
// that has it was read, or could not be.
func Merge(w Word) Desired {
	d := Desired{Pods: map[pod.Key]*v1.Pod{}, Complete: true}
	offers := map[pod.Key][]offer{}
	waits := false // for a source
	for _, name := range w.Order {
		said, ok := w.Last[name]
		if !ok {
			d.Complete = false
		}
		if err := w.Failing[name]; err != nil {
			d.Problems = append(d.Problems, Problem{Origin: Origin{Source: kindOf(name), Path: name}, Blind: !ok, Err: err})
		}
		d.Problems = append(d.Problems, said.Problems...)
		d.Warnings = append(d.Warnings, said.Warnings...)
		waits = waits || !ok && w.Failing[name] == nil && !w.Late
		pods := slices.Clone(said.Pods)
		slices.SortStableFunc(pods, func(a, b *v1.Pod) int { return cmp.Compare(OriginOf(a).Path, OriginOf(b).Path) })
		for _, p := range pods {
			offers[pod.KeyOf(p)] = append(offers[pod.KeyOf(p)], offer{p, waits})
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(offers), pod.Key.Compare) {
		at := w.choose(key, offers[key])
		if at < 0 {
			continue
		}
		used := offers[key][at].pod
		d.Pods[key] = used
		for i, o := range offers[key] {
			p := o.pod
			if i != at && OriginOf(p) != OriginOf(used) { // else one file that two sources read, as a directory and the file in it
				err := &DuplicateError{Key: key, Used: OriginOf(used), Not: OriginOf(p)}
				d.Problems = append(d.Problems, Problem{Origin: OriginOf(p), Key: key, Err: err})
			}
		}
	}
	d.Problems = append(d.Problems, w.partUIDs(d.Pods)...)
	d.Problems = append(d.Problems, circles(d.Pods)...)
	w.gather(&d)
	w.markConfig(&d)
	return d
}

// partUIDs takes out pods whose metadata.uid is another's, as of a manifest that was copied: what is kept
// for a pod is kept under its UID. What runs stays, else the first by name.
func (w Word) partUIDs(pods map[pod.Key]*v1.Pod) []Problem {
	rank := func(key pod.Key) int {
		if from, runs := w.Running[key]; runs && from == OriginOf(pods[key]) {
			return 0
		}
		return 1
	}
	keys := slices.SortedFunc(maps.Keys(pods), func(a, b pod.Key) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Compare(b)) })
	var problems []Problem
	owners := map[pod.UID]pod.Key{}
	for _, key := range keys {
		p := pods[key]
		first, taken := owners[p.UID]
		if !taken || p.UID == "" {
			owners[p.UID] = key
			continue
		}
		err := &InvalidError{Errors: []FieldError{{File: OriginOf(p).Path, Field: "metadata.uid", Key: key,
			Message: fmt.Sprintf("Duplicate value: %q: is also that of pod %s in %s; leave it out of one of them", p.UID, first, OriginOf(pods[first]).Path)}}}
		// If it runs all the same, it must not be cleared away over the other's head.
		problems = append(problems, Problem{Origin: OriginOf(p), Key: key, Blind: true, Err: err})
		delete(pods, key)
	}
	return problems
}

// offer is a pod as one source has it.
type offer struct {
	pod *v1.Pod
	// waits: a source before that one may have the pod too, and has yet to speak.
	waits bool
}

// choose returns which offer is used; -1 while the source that the pod runs from has yet to speak, or, where it does
// not run, one before the first that offers it.
func (w Word) choose(key pod.Key, offers []offer) int {
	first := 0
	if offers[0].waits {
		first = -1
	}
	from, runs := w.Running[key]
	if !runs {
		return first
	}
	if i := slices.IndexFunc(offers, func(o offer) bool { return OriginOf(o.pod) == from }); i >= 0 {
		return i
	}
	for _, name := range w.Order {
		_, spoken := w.Last[name]
		if !spoken && (from.Path == name || strings.HasPrefix(from.Path, name+"/")) {
			return -1
		}
	}
	return first
}

// kindOf tells URLs from paths.
func kindOf(source string) string {
	if strings.Contains(source, "://") {
		return SourceHTTP
	}
	return SourceFile
}

// Mux merges what the sources say as they say it.
type Mux struct{ word Word }

// NewMux takes the sources' names, the one that counts most first, and where the pods that run now were
// read.
func NewMux(order []string, running map[pod.Key]Origin) *Mux {
	seed := map[pod.Key]Origin{}
	maps.Copy(seed, running)
	return &Mux{word: Word{Order: order, Last: map[string]Snapshot{}, Failing: map[string]error{}, Running: seed}}
}

// Run merges until ctx ends. A Desired that was not received yet is replaced by a newer one, so that no
// source has to wait.
func (m *Mux) Run(ctx context.Context, in <-chan Snapshot, out chan<- Desired) error {
	var newest Desired
	var ready chan<- Desired // nil while there is nothing new
	late := time.NewTimer(sourcePatience)
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-late.C:
			m.word.Late = true
			if len(m.word.Last)+len(m.word.Failing) > 0 && !newest.Complete {
				newest, ready = m.merge(), out
			}
		case s := <-in:
			newest, ready = m.apply(s), out
		case ready <- newest:
			ready = nil
		}
	}
}

// apply takes in a snapshot and merges anew.
func (m *Mux) apply(s Snapshot) Desired {
	if s.Err != nil {
		m.word.Failing[s.Source] = s.Err
	} else {
		delete(m.word.Failing, s.Source)
		m.word.Last[s.Source] = s
	}
	return m.merge()
}

// merge makes one set of what was heard so far.
func (m *Mux) merge() Desired {
	d := Merge(m.word)
	if d.Complete {
		m.word.Running = map[pod.Key]Origin{}
	}
	for key, p := range d.Pods {
		m.word.Running[key] = OriginOf(p)
	}
	return d
}
