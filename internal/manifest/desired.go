package manifest

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
)

// Annotations that a loaded pod carries. The kubernetes.io ones are the kubelet's.
const (
	// AnnotationHash is the pod's UID. Log collectors use it to find the log directory of a pod
	// from a file.
	AnnotationHash = "kubernetes.io/config.hash"
	// AnnotationManifestHash is the hash of the manifest as written; it follows every edit.
	AnnotationManifestHash = "podrun.io/manifest-hash"
	// AnnotationSource is the name of the kind of source: "file", "http" or another SourceKind's.
	AnnotationSource = "kubernetes.io/config.source"
	// AnnotationSeen is when this revision was first read, RFC 3339.
	AnnotationSeen = "kubernetes.io/config.seen"
	// AnnotationManifest is the file or URL that the pod was read from.
	AnnotationManifest = "podrun.io/manifest"
	// AnnotationError is set on pods in output only: the errors of the pod's manifest, because of
	// which the pod may not run what the manifest says now.
	AnnotationError = "podrun.io/manifest-error"
	// AnnotationWarnings has the warnings about fields of the pod's manifest that are ignored, one a line.
	AnnotationWarnings = "podrun.io/manifest-warnings"
	// AnnotationNext is set on pods in output only: the time at which a failed action is tried
	// again, RFC 3339.
	AnnotationNext = "podrun.io/next-attempt"
	// AnnotationRolledBack says why a pod runs a former revision of its manifest; other pods do not have it.
	AnnotationRolledBack = "podrun.io/rolled-back"
)

// OwnAnnotations returns the annotations that podrun alone writes.
func OwnAnnotations() []string {
	return []string{
		AnnotationHash, AnnotationManifestHash, AnnotationSource, AnnotationSeen, AnnotationManifest, AnnotationError,
		AnnotationConfig, AnnotationWarnings, AnnotationNext, AnnotationRolledBack, workload.Annotation,
		pod.AnnotationSurge, pod.AnnotationPinned,
	}
}

// The names of the kubelet's kinds of source.
const (
	SourceFile = "file"
	SourceHTTP = "http"
)

// SourceKind is what all sources of one kind have in common. The package of a source declares its kind.
type SourceKind struct {
	// Name is the value of the annotation kubernetes.io/config.source, and of the label source in metrics.
	Name string
	// Identity precedes the path in the text whose hash is a pod's UID, such as "file:".
	Identity string
	// Tolerates says that pods tolerate all NoExecute taints, as the kubelet's pods from files do.
	Tolerates bool
	// LogsProblems says that the source logs by itself why its manifests cannot be used.
	LogsProblems bool
}

// fileKind is the kind of sources, and of load options, that name none.
var fileKind = SourceKind{Name: SourceFile, Identity: "file:", Tolerates: true}

// orFile returns k, or the kind of files if k is zero.
func (k SourceKind) orFile() SourceKind {
	if k == (SourceKind{}) {
		return fileKind
	}
	return k
}

// Origin is where a document was read.
type Origin struct {
	Source string // the name of the source's kind
	Path   string // the file's path, the URL without its secrets, or what else the source is named by
}

// NewRun returns the Job of which a pod, which is not desired, belongs to another run; nil if there is none.
func (d Desired) NewRun(p *v1.Pod) *workload.Workload {
	of, ok := workload.Of(p)
	if !ok || of.Kind != workload.Job {
		return nil
	}
	for _, w := range d.Workloads {
		if run := d.Jobs[of]; w.ID == of && run != nil && run.Run != workload.RunOf(p) {
			return w
		}
	}
	return nil
}

// OriginOf returns where p was read, from its annotations.
func OriginOf(p *v1.Pod) Origin {
	return Origin{Source: p.Annotations[AnnotationSource], Path: p.Annotations[AnnotationManifest]}
}

// Problem is an error because of which a manifest, or a pod in it, cannot be used. The pods that
// run from its origin continue to run.
type Problem struct {
	Origin Origin
	// Key is the pod that the problem concerns, if that is known.
	Key pod.Key
	// Blind is set if it is not known what the origin wants, for example because it could not be
	// read since podrun started. A pod that runs from it may then be wanted (Desired.Keeps). If
	// Blind is not set, the last good content of the origin is known, and a pod that is not in
	// Desired.Pods was removed by a valid edit.
	Blind bool
	// Logged says that the source has logged it by itself.
	Logged bool
	Err    error
}

// Problems returns one Problem for each pod that err concerns, and one for the errors whose pod is
// not known. It returns nil for a nil err.
func Problems(origin Origin, blind bool, err error) []Problem {
	var invalid *InvalidError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &invalid):
		return []Problem{{Origin: origin, Blind: blind, Err: err}}
	}
	var keys []pod.Key
	byKey := map[pod.Key][]FieldError{}
	for _, e := range invalid.Errors {
		if byKey[e.Key] == nil {
			keys = append(keys, e.Key)
		}
		byKey[e.Key] = append(byKey[e.Key], e)
	}
	var all []Problem
	for _, key := range keys {
		all = append(all, Problem{Origin: origin, Key: key, Blind: blind, Err: &InvalidError{Errors: byKey[key]}})
	}
	return all
}

// FieldWarnings returns the warnings about ignored fields of a manifest as problems of its pods.
func (l Loaded) FieldWarnings(origin Origin) []Problem {
	var all []Problem
	for _, w := range l.Warnings {
		all = append(all, Problem{Origin: origin, Key: w.Key, Err: w})
	}
	return all
}

// MarkSeen sets AnnotationSeen of each pod and template to now. In place of a pod whose revision is already
// in before, it puts that earlier object into l, with its annotation.
func (l Loaded) MarkSeen(before Loaded, now time.Time) {
	same := func(a, b *v1.Pod) bool {
		return a.UID == b.UID && a.Name == b.Name && a.Namespace == b.Namespace && ManifestHash(a) == ManifestHash(b)
	}
	for i, p := range l.Pods {
		p.Annotations[AnnotationSeen] = now.Format(time.RFC3339)
		for _, old := range before.Pods {
			if same(old, p) {
				l.Pods[i] = old
			}
		}
	}
	for _, w := range l.Workloads {
		w.Template.Annotations[AnnotationSeen] = now.Format(time.RFC3339)
		for _, old := range before.Workloads {
			if old.ID == w.ID && same(old.Template, w.Template) {
				w.Template.Annotations[AnnotationSeen] = old.Template.Annotations[AnnotationSeen]
			}
		}
	}
}

// Snapshot is the complete content of one source at one moment. The pods and objects in it must not
// be modified.
type Snapshot struct {
	// Source is the name of the source, Kind its kind. The zero Kind is the kind of files.
	Source string
	Kind   SourceKind
	// Pods are the desired pods. Of a file that is invalid now they are those of its last good
	// content.
	Pods []*v1.Pod
	// GivenUIDs are the UIDs of those pods whose UID the manifest gives.
	GivenUIDs []pod.UID
	// Objects are the ConfigMaps and Secrets, with those of the last good content of invalid files.
	Objects []Object
	// Workloads are the documents that pods are made from, with those of the last good content of
	// invalid files.
	Workloads []*workload.Workload
	// Problems are the errors of documents that cannot be used.
	Problems []Problem
	// Warnings are about documents that are used nevertheless.
	Warnings []Problem
	// Err is set if the source itself could not be read. All fields but Source are then
	// meaningless, and the previous snapshot of the source remains valid.
	Err error
}

// Source reads manifests from one path, URL or command, or from standard input.
type Source interface {
	// Name is unique among the sources of a run: the path, the URL or the command that the source reads.
	Name() string
	// Run reads the manifests until ctx ends. It sends a complete Snapshot whenever the content may
	// have changed.
	Run(ctx context.Context, out chan<- Snapshot) error
}

// Desired is the desired state: the merged content of all sources.
type Desired struct {
	Pods map[pod.Key]*v1.Pod
	// Workloads are the documents that some of the pods were made from, and the Jobs of the CronJobs among them.
	Workloads []*workload.Workload
	// Retained are pods of workloads that are not desired, and that wait until others are removed.
	Retained map[pod.Key]bool
	// Histories are those of the Jobs and CronJobs, which are recorded before the pods are acted on.
	workload.Histories
	// Arrived says of each Job whether it is Complete, by the key by which pods start after it.
	Arrived map[pod.Key]bool
	// Next is when to merge again even if nothing changes; zero: never.
	Next time.Time
	// Objects are the ConfigMaps and Secrets that the pods may refer to, Former those of pods of former revisions.
	Objects pod.Objects
	Former  map[pod.Key]pod.Objects
	// AutoUpdates are the images about which registries are asked, GivenUIDs the UIDs that manifests give.
	AutoUpdates map[workload.ID]workload.AutoUpdate
	GivenUIDs   map[pod.UID]bool
	// Inspect are the pods that must be inspected, for it to be known whether they are healthy.
	Inspect  []pod.Key
	Problems []Problem
	// Warnings are about documents that are used nevertheless.
	Warnings []Problem
	// Grace is the maximum grace period for pods that are not desired; nil: the one of their
	// manifests applies.
	Grace *time.Duration
	// Kinds are the names of the kinds of all sources that were read or failed.
	Kinds []string
	// Complete is set once every source was read. While it is false, nothing may be removed because
	// it is not desired.
	Complete bool
}

// ObjectsOf returns the ConfigMaps and Secrets that a pod may refer to.
func (d Desired) ObjectsOf(key pod.Key) pod.Objects {
	if former, is := d.Former[key]; is {
		return former
	}
	return d.Objects
}

// Keeps reports whether a pod that is not in Pods must not be removed, because the content of its
// origin is not known, or because an invalid manifest has a pod of its name.
func (d Desired) Keeps(p *v1.Pod) bool {
	return !d.Complete || d.Retained[pod.KeyOf(p)] ||
		slices.ContainsFunc(d.Problems, func(problem Problem) bool { return problem.Keeps(p) })
}

// Keeps reports whether the manifest with the problem may contain p, which runs.
func (problem Problem) Keeps(p *v1.Pod) bool {
	return problem.Blind && problem.Origin.covers(OriginOf(p)) || slices.Contains(keysOf(p), problem.Key)
}

// keysOf returns the keys by which a problem can concern p: its own and, if it is the pod of a workload, that of the
// workload's template, or that of the pod that it is there for.
func keysOf(p *v1.Pod) []pod.Key {
	group, _ := pod.UpdateGroup(p)
	name, suffix := group[strings.LastIndexByte(group, '/')+1:], strings.TrimPrefix(p.Name, pod.ManifestName(p))
	if strings.Contains(group, "/Pod/") { // its name is the whole one
		suffix = ""
	}
	return slices.Compact([]pod.Key{pod.KeyOf(p), {Namespace: p.Namespace, Name: name + suffix}})
}

// covers reports whether other is o, or a file directly in o: o may have been a directory when
// other was read from it.
func (o Origin) covers(other Origin) bool {
	inside := o.Source == other.Source && filepath.IsAbs(o.Path) && filepath.Dir(other.Path) == o.Path
	return o == other || inside
}
