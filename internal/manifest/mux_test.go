package manifest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/pod"
)

// at is a pod as a source would have read it.
func at(path, name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
		Annotations: map[string]string{AnnotationSource: SourceFile, AnnotationManifest: path}}}
}

func key(name string) pod.Key { return pod.Key{Namespace: "default", Name: name} }

// desired is a Desired in one line.
func desired(d Desired) string {
	var words []string
	for _, k := range slices.SortedFunc(maps.Keys(d.Pods), pod.Key.Compare) {
		words = append(words, k.Name+"@"+OriginOf(d.Pods[k]).Path)
	}
	for _, p := range d.Problems {
		words = append(words, "bad "+p.Origin.Path)
	}
	if !d.Complete {
		words = append(words, "incomplete")
	}
	return strings.Join(words, " ")
}

func TestMux(t *testing.T) {
	t.Parallel()
	file := func(path string) Origin { return Origin{Source: SourceFile, Path: path} }
	says := func(source string, pods ...*v1.Pod) Snapshot { return Snapshot{Source: source, Pods: pods} }
	cases := []struct {
		name    string
		running map[pod.Key]Origin
		said    []Snapshot
		want    string
	}{
		{"nobody spoke", nil, nil, "incomplete"},
		{"the first spoke", nil, []Snapshot{says("/a", at("/a/x", "x"))}, "x@/a/x incomplete"},
		{"the second spoke, the first may have it", nil, []Snapshot{says("/b", at("/b/x", "x"))}, "incomplete"},
		{"the first fails, the second has it", nil, []Snapshot{says("/b", at("/b/x", "x")), {Source: "/a", Err: errors.New("x")}}, "x@/b/x bad /a incomplete"},
		{"the first fails and then has it too", nil, []Snapshot{{Source: "/a", Err: errors.New("x")}, says("/b", at("/b/x", "x")), says("/a", at("/a/x", "x"))},
			"x@/b/x bad /a/x"},
		{"both spoke", nil, []Snapshot{says("/a"), says("/b", at("/b/x", "x"))}, "x@/b/x"},
		{"gone again", nil, []Snapshot{says("/a"), says("/b", at("/b/x", "x")), says("/b")}, ""},
		{"failing keeps", nil, []Snapshot{says("/a"), says("/b", at("/b/x", "x")), {Source: "/b", Err: errors.New("x")}}, "x@/b/x bad /b"},
		{"failing from the start", nil, []Snapshot{says("/a"), {Source: "/b", Err: errors.New("x")}}, "bad /b incomplete"},
		{"mended", nil, []Snapshot{says("/a"), {Source: "/b", Err: errors.New("x")}, says("/b")}, ""},
		{"two files: by name", nil, []Snapshot{says("/a", at("/a/2", "x"), at("/a/1", "x")), says("/b")}, "x@/a/1 bad /a/2"},
		{"two sources: by order", nil, []Snapshot{says("/b", at("/b/1", "x")), says("/a", at("/a/2", "x"))}, "x@/a/2 bad /b/1"},
		{"two sources at once", nil, []Snapshot{says("/a", at("/a/2", "x")), says("/b", at("/b/1", "x"))}, "x@/a/2 bad /b/1"},
		{"one file by two sources", nil, []Snapshot{says("/a", at("/a/1", "x")), says("/b", at("/a/1", "x"))}, "x@/a/1"},
		{"a newcomer does not displace", nil, []Snapshot{says("/b"), says("/a", at("/a/2", "x")), says("/a", at("/a/1", "x"), at("/a/2", "x"))}, "x@/a/2 bad /a/1"},
		{"the second takes over", nil, []Snapshot{says("/b"), says("/a", at("/a/1", "x"), at("/a/2", "x")), says("/a", at("/a/2", "x"))}, "x@/a/2"},
		{"what runs stays", map[pod.Key]Origin{key("x"): file("/a/2")},
			[]Snapshot{says("/b"), says("/a", at("/a/1", "x"), at("/a/2", "x"))}, "x@/a/2 bad /a/1"},
		{"what runs waits for its source", map[pod.Key]Origin{key("x"): file("/b/1")},
			[]Snapshot{says("/a", at("/a/1", "x"))}, "incomplete"},
		{"and stays", map[pod.Key]Origin{key("x"): file("/b/1")},
			[]Snapshot{says("/a", at("/a/1", "x")), says("/b", at("/b/1", "x"))}, "x@/b/1 bad /a/1"},
		{"what runs from nowhere known", map[pod.Key]Origin{key("x"): file("/c/1")}, []Snapshot{says("/a", at("/a/1", "x"))}, "x@/a/1 incomplete"},
		{"what runs from nowhere known: by order", map[pod.Key]Origin{key("x"): file("/c/1")},
			[]Snapshot{says("/b", at("/b/1", "x")), says("/a", at("/a/1", "x"))}, "x@/a/1 bad /b/1"},
		{"what runs waits for nobody else", map[pod.Key]Origin{key("x"): file("/b/1")}, []Snapshot{says("/b", at("/b/1", "x"))}, "x@/b/1 incomplete"},
		{"problems come along", nil, []Snapshot{says("/a"), {Source: "/b", Problems: []Problem{{Origin: file("/b/x"), Err: errors.New("x")}}}}, "bad /b/x"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := NewMux([]string{"/a", "/b"}, c.running)
			d := Merge(m.sources)
			for _, s := range c.said {
				d = m.apply(s)
			}
			if got := desired(d); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestOneUIDForTwoPods(t *testing.T) {
	t.Parallel()
	with := func(path, name string, uid pod.UID) *v1.Pod {
		p := at(path, name)
		p.UID = uid
		return p
	}
	m := NewMux([]string{"/m"}, nil)
	d := m.apply(Snapshot{Source: "/m", Pods: []*v1.Pod{with("/m/b", "b", "u"), with("/m/c", "c", "v")}})
	if got := desired(d); got != "b@/m/b c@/m/c" {
		t.Error(got)
	}
	// A copy, with a name that comes first.
	d = m.apply(Snapshot{Source: "/m", Pods: []*v1.Pod{with("/m/a", "a", "u"), with("/m/b", "b", "u"), with("/m/c", "c", "v")}})
	if got := desired(d); got != "b@/m/b c@/m/c bad /m/a" {
		t.Error(got)
	}
	want := `/m/a: metadata.uid: Duplicate value: "u": is also that of pod default/b in /m/b; leave it out of one of them`
	if got := d.Problems[0].Err.Error(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	d = m.apply(Snapshot{Source: "/m", Pods: []*v1.Pod{with("/m/a", "a", "u")}})
	if got := desired(d); got != "a@/m/a" {
		t.Error(got)
	}
}

func TestKeeps(t *testing.T) {
	t.Parallel()
	duplicate := &DuplicateError{Key: key("x"), Used: Origin{SourceFile, "/a"}, Not: Origin{SourceFile, "/b"}}
	d := Desired{Complete: true, Problems: []Problem{
		{Origin: Origin{SourceFile, "/bad"}, Blind: true, Err: errors.New("x")},
		{Origin: Origin{SourceFile, "/was good"}, Err: errors.New("x")},
		{Origin: Origin{SourceFile, "/b"}, Err: duplicate},
		{Origin: Origin{SourceFile, "/new"}, Key: key("renamed"), Err: errors.New("x")},
	}}
	for path, want := range map[string]bool{"/bad": true, "/bad/of its directory": true, "/bad/deeper/no": false, "/was good": false, "/b": false, "/gone": false} {
		if got := d.Keeps(at(path, "p")); got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
	if renamed := at("/old", "renamed"); !d.Keeps(renamed) || d.PodProblems().Of(renamed) != "x" {
		t.Errorf("a pod whose file was renamed and is bad: %t, %q", d.Keeps(renamed), d.PodProblems().Of(renamed))
	}
	d.Complete = false
	if !d.Keeps(at("/gone", "p")) {
		t.Error("incomplete, and yet it may go")
	}
	if got, want := duplicate.Error(), "/b: pod default/x is also in /a, which is used"; got != want {
		t.Errorf("error is %q", got)
	}
}

func TestMuxHandsOutTheNewestOnly(t *testing.T) {
	t.Parallel()
	m := NewMux([]string{"/a"}, nil)
	in, out := make(chan Snapshot), make(chan Desired)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Run(ctx, in, out) }()
	for i := range 5 { // nobody receives, and no source waits
		in <- Snapshot{Source: "/a", Pods: []*v1.Pod{at("/a/1", fmt.Sprint(i))}}
	}
	if got := desired(<-out); got != "4@/a/1" {
		t.Errorf("got %s", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestMuxDoesNotWaitForEver checks that a source that is neither read nor fails, such as a file
// system that hangs, delays the pods of the sources after it only for a limited time.
func TestMuxDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := make(chan Snapshot), make(chan Desired)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- NewMux([]string{"/a", "/b"}, nil).Run(ctx, in, out) }()
		began := time.Now()
		in <- Snapshot{Source: "/b", Pods: []*v1.Pod{at("/b/1", "x")}}
		if got := desired(<-out); got != "incomplete" {
			t.Errorf("at once: %s", got)
		}
		if got := desired(<-out); got != "x@/b/1 incomplete" || time.Since(began) != sourcePatience {
			t.Errorf("after %s: %s", time.Since(began), got)
		}
		in <- Snapshot{Source: "/a", Pods: []*v1.Pod{at("/a/1", "x"), at("/a/2", "y")}}
		if got := desired(<-out); got != "x@/b/1 y@/a/2 bad /a/1" {
			t.Errorf("in the end: %s", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
