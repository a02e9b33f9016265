package manifest

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

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

func TestMerge(t *testing.T) {
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
			all := Sources{Order: []string{"/a", "/b"}, Running: maps.Clone(c.running)}
			d := Merge(all)
			for _, s := range c.said {
				all.Record(s)
				d = all.Update()
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
	all := Sources{Order: []string{"/m"}}
	apply := func(s Snapshot) Desired {
		all.Record(s)
		return all.Update()
	}
	d := apply(Snapshot{Source: "/m", Pods: []*v1.Pod{with("/m/b", "b", "u"), with("/m/c", "c", "v")}})
	if got := desired(d); got != "b@/m/b c@/m/c" {
		t.Error(got)
	}
	// A copy, with a name that comes first.
	d = apply(Snapshot{Source: "/m", Pods: []*v1.Pod{with("/m/a", "a", "u"), with("/m/b", "b", "u"), with("/m/c", "c", "v")}})
	if got := desired(d); got != "b@/m/b c@/m/c bad /m/a" {
		t.Error(got)
	}
	want := `/m/a: metadata.uid: Duplicate value: "u": is also that of pod default/b in /m/b; leave it out of one of them`
	if got := d.Problems[0].Err.Error(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	d = apply(Snapshot{Source: "/m", Pods: []*v1.Pod{with("/m/a", "a", "u")}})
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
