package manifest

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

// Annotations that a loaded pod carries. The kubernetes.io ones are the kubelet's.
const (
	// AnnotationHash is the pod's UID: log collectors find the log directory of a pod from a file by it.
	AnnotationHash = "kubernetes.io/config.hash"
	// AnnotationManifestHash is the hash of the manifest as written; it follows every edit.
	AnnotationManifestHash = "podrun.io/manifest-hash"
	// AnnotationSource is "file" or "http".
	AnnotationSource = "kubernetes.io/config.source"
	// AnnotationSeen is when this revision was first read, RFC 3339.
	AnnotationSeen = "kubernetes.io/config.seen"
	// AnnotationManifest is the file or URL that the pod was read from.
	AnnotationManifest = "podrun.io/manifest"
	// AnnotationError is on pods that are shown: what is wrong where the pod was read, so that it may not
	// run what is written there now.
	AnnotationError = "podrun.io/manifest-error"
	// AnnotationNext is on pods that are shown: when what has failed is tried again, RFC 3339.
	AnnotationNext = "podrun.io/next-attempt"
)

// The kinds of source that an Origin names.
const (
	SourceFile = "file"
	SourceHTTP = "http"
)

// Origin is where a document was read.
type Origin struct {
	Source string // "file" or "http"
	Path   string // the file's path or the URL
}

// OriginOf returns where p was read, from its annotations.
func OriginOf(p *v1.Pod) Origin {
	return Origin{Source: p.Annotations[AnnotationSource], Path: p.Annotations[AnnotationManifest]}
}

// Problem is something in a manifest that cannot be used. What ran from there before goes on.
type Problem struct {
	Origin Origin
	// Key is the pod concerned, where it could be told.
	Key pod.Key
	// Blind: nothing good has been read from there in this run, so that what runs from there may well be
	// wanted. Otherwise a pod that is not among the wanted ones has left by a good edit.
	Blind bool
	Err   error
}

// Problems makes one Problem for each pod that an error concerns, and one for what cannot be told.
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

// MarkSeen notes on pods when their revision was first read: before if it is among those.
func MarkSeen(pods, before []*v1.Pod, now time.Time) {
	for i, p := range pods {
		p.Annotations[AnnotationSeen] = now.Format(time.RFC3339)
		for _, old := range before {
			if old.UID == p.UID && old.Name == p.Name && old.Namespace == p.Namespace && manifestHash(old) == manifestHash(p) {
				pods[i] = old
			}
		}
	}
}

// Snapshot is all that one source wants at a moment. Nobody changes the pods in it.
type Snapshot struct {
	Source string
	// Pods include the last good ones of files that are bad now.
	Pods []*v1.Pod
	// Objects are the ConfigMaps and Secrets, the last good ones too.
	Objects []Object
	// Problems are the documents that cannot be used.
	Problems []Problem
	// Warnings are what is used all the same.
	Warnings []Problem
	// Err says that the source itself could not be read; Pods and Problems are then meaningless and
	// what it said before stands.
	Err error
}

// Source reads manifests until ctx ends. It sends a whole Snapshot whenever it may have changed.
type Source interface {
	// Name is unique among the sources of a run: the path or the URL that it reads.
	Name() string
	Run(ctx context.Context, out chan<- Snapshot) error
}

// Desired is the merged will of all sources.
type Desired struct {
	Pods map[pod.Key]*v1.Pod
	// Objects are what the pods may refer to.
	Objects  pod.Objects
	Problems []Problem
	// Warnings are what is used all the same.
	Warnings []Problem
	// Grace is the longest that a pod which is not wanted may take to end; nil: as its manifest had it.
	Grace *time.Duration
	// Complete says that every source has been read at least once. While it is false nobody may
	// remove anything on the ground that it is not wanted.
	Complete bool
}

// Keeps reports that a pod that is not in Pods must stay all the same, because nobody knows what the
// place that its manifest came from wants, or because a manifest that cannot be used has its name.
func (d Desired) Keeps(p *v1.Pod) bool {
	return !d.Complete || slices.ContainsFunc(d.Problems, func(problem Problem) bool { return problem.keeps(p) })
}

// keeps reports that what is bad may well want p, which runs.
func (problem Problem) keeps(p *v1.Pod) bool {
	return problem.Blind && problem.Origin.covers(OriginOf(p)) || problem.Key == pod.KeyOf(p)
}

// covers reports that what was read from other was o, or a file in o while that was a directory still.
func (o Origin) covers(other Origin) bool {
	inside := o.Source == SourceFile && other.Source == SourceFile && filepath.Dir(other.Path) == o.Path
	return o == other || inside
}
