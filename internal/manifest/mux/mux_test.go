package mux

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
)

// at is a pod that was read from a path.
func at(path, name string) *v1.Pod {
	p := &v1.Pod{}
	p.Namespace, p.Name, p.Annotations = "default", name, map[string]string{manifest.AnnotationSource: manifest.SourceFile, manifest.AnnotationManifest: path}
	return p
}

// desired lists what d has.
func desired(d manifest.Desired) string {
	var all []string
	for key, p := range d.Pods {
		all = append(all, key.Name+"@"+manifest.OriginOf(p).Path)
	}
	slices.Sort(all)
	for _, p := range d.Problems {
		all = append(all, "bad "+p.Origin.Path)
	}
	if !d.Complete {
		all = append(all, "incomplete")
	}
	return strings.Join(all, " ")
}

// record is a Record that tests change.
type record struct {
	exists  map[pod.Key]string
	changed chan struct{}
}

func (r *record) Recorded() workload.Recorded { return workload.Recorded{Exists: r.exists} }
func (r *record) Changed() <-chan struct{}    { return r.changed }
func (r *record) Sent(map[pod.Key]*v1.Pod)    {}
func (r *record) Save(workload.Histories) map[workload.ID]bool {
	return nil
}

// TestMuxMergesAgain: when a pod of a workload is gone, the next one may go.
func TestMuxMergesAgain(t *testing.T) {
	t.Parallel()
	loaded, err := manifest.Load([]byte("apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\n"+
		"spec: {replicas: 0, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}"),
		manifest.LoadOptions{Origin: manifest.Origin{Source: manifest.SourceFile, Path: "/a/1"}, NodeName: "n"})
	if err != nil {
		t.Fatal(err)
	}
	zero, one := pod.Key{Namespace: "default", Name: "db-0-n"}, pod.Key{Namespace: "default", Name: "db-1-n"}
	r := &record{exists: map[pod.Key]string{zero: "StatefulSet/db", one: "StatefulSet/db"}, changed: make(chan struct{})}
	in, out := make(chan manifest.Snapshot), make(chan manifest.Desired)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- New([]string{"/a"}, nil, r).Run(ctx, in, out) }()
	in <- manifest.Snapshot{Source: "/a", Workloads: loaded.Workloads}
	if d := <-out; !d.Retained[zero] || d.Retained[one] {
		t.Errorf("retained at first: %v", d.Retained)
	}
	r.exists = map[pod.Key]string{zero: "StatefulSet/db"}
	r.changed <- struct{}{}
	if d := <-out; len(d.Retained) > 0 {
		t.Errorf("retained in the end: %v", d.Retained)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestMuxHandsOutTheNewestOnly(t *testing.T) {
	t.Parallel()
	m := New([]string{"/a"}, nil, nil)
	in, out := make(chan manifest.Snapshot), make(chan manifest.Desired)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Run(ctx, in, out) }()
	for i := range 5 { // nobody receives, and no source waits
		in <- manifest.Snapshot{Source: "/a", Pods: []*v1.Pod{at("/a/1", fmt.Sprint(i))}}
	}
	if got := desired(<-out); got != "4@/a/1" {
		t.Errorf("got %s", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestMuxSaysWhatHangs: if the only source hangs, that is known after a while, and the pods that run are of a source
// that cannot be read.
func TestMuxSaysWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := make(chan manifest.Snapshot), make(chan manifest.Desired)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- New([]string{"/a"}, nil, nil).Run(ctx, in, out) }()
		began := time.Now()
		d := <-out
		if got := desired(d); got != "bad /a incomplete" || time.Since(began) != Patience {
			t.Errorf("after %s: %s", time.Since(began), got)
		}
		if !errors.Is(d.Problems[0].Err, ErrUnanswered) || !d.Keeps(at("/a/1", "x")) {
			t.Errorf("%v; a pod of it is kept: %v", d.Problems, d.Keeps(at("/a/1", "x")))
		}
		in <- manifest.Snapshot{Source: "/a", Pods: []*v1.Pod{at("/a/1", "x")}}
		if got := desired(<-out); got != "x@/a/1" {
			t.Errorf("in the end: %s", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestMuxDoesNotWaitForEver checks that a source that is neither read nor fails, such as a file
// system that hangs, delays the pods of the sources after it only for a limited time.
func TestMuxDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := make(chan manifest.Snapshot), make(chan manifest.Desired)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- New([]string{"/a", "/b"}, nil, nil).Run(ctx, in, out) }()
		began := time.Now()
		in <- manifest.Snapshot{Source: "/b", Pods: []*v1.Pod{at("/b/1", "x")}}
		if got := desired(<-out); got != "incomplete" {
			t.Errorf("at once: %s", got)
		}
		if got := desired(<-out); got != "x@/b/1 bad /a incomplete" || time.Since(began) != Patience {
			t.Errorf("after %s: %s", time.Since(began), got)
		}
		in <- manifest.Snapshot{Source: "/a", Pods: []*v1.Pod{at("/a/1", "x"), at("/a/2", "y")}}
		if got := desired(<-out); got != "x@/b/1 y@/a/2 bad /a/1" {
			t.Errorf("in the end: %s", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
