package event

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"podrun.io/podrun/internal/checkpoint/layout"

	"podrun.io/podrun/internal/pod"
)

var began = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// record returns an event of a pod at a number of seconds.
func record(name, reason string, at int) Record {
	when := began.Add(time.Duration(at) * time.Second)
	return Record{Namespace: "default", Name: name, UID: "u", Reason: reason, Message: "m", Count: 1, First: when, Last: when}
}

func text(records []Record) string {
	var out []string
	for _, r := range records {
		out = append(out, fmt.Sprintf("%s %s x%d %d-%d", r.Name, r.Reason, r.Count, int(r.First.Sub(began).Seconds()), int(r.Last.Sub(began).Seconds())))
	}
	return strings.Join(out, "\n")
}

func TestFoldCountsAndOrders(t *testing.T) {
	t.Parallel()
	other := record("web", "Started", 3)
	other.UID = "v"
	got := text(fold([]Record{record("web", "Started", 1), record("web", "BackOff", 2), other, record("web", "Started", 9), record("db", "Started", 4), record("web", "Started", 5)}))
	if want := "web BackOff x1 2-2\nweb Started x1 3-3\ndb Started x1 4-4\nweb Started x3 1-9"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestSimilarEvents: a probe that fails with another text each time pushes no other event of its pod out.
func TestSimilarEvents(t *testing.T) {
	t.Parallel()
	failed := func(at int) Record {
		r := record("web", "Unhealthy", at)
		r.Container, r.Message = "c", fmt.Sprintf("at %d: %s", at, strings.Repeat("x", mostMessage-len("at 99999: ")))
		return r
	}
	all := []Record{record("web", "Pulled", 0)}
	for i := range 300 {
		all = append(all, failed(10+10*i))
	}
	again := failed(10) // with a text that was there
	again.First, again.Last = failed(3005).First, failed(3005).Last
	other := failed(3006)
	other.Container = "d"
	all = append(all, again, other, failed(9000)) // the last one long after
	node := record("node1", "FailedValidation", 9000)
	node.Namespace = ""
	for i := range 20 {
		node.Message = fmt.Sprint(i)
		all = append(all, node)
	}
	got := fold(all)
	var of []string
	for _, r := range got {
		if len(r.Message) > mostMessage {
			t.Errorf("a message of %d bytes", len(r.Message))
		}
		if r.Name == "web" {
			message, _, _ := strings.Cut(r.Message, ": x")
			of = append(of, fmt.Sprintf("%s x%d %q", r.Container, r.Count, message))
		}
	}
	want := []string{` x1 "m"`}
	for i := 1; i < 9; i++ {
		want = append(want, fmt.Sprintf(`c x1 "at %d"`, 10+10*i))
	}
	want = append(want, `c x291 "(combined from similar events): at 3000"`, `c x2 "at 10"`, `d x1 "at 3006"`, `c x1 "at 9000"`)
	if !slices.Equal(of, want) || len(got) != len(want)+20 {
		t.Errorf("got\n%s", strings.Join(of, "\n"))
	}
	once := fmt.Sprint(got)
	if again := fold(got); fmt.Sprint(again) != once {
		t.Errorf("folded again\n%s", text(again))
	}
	more := fold(append(got, failed(3010)))
	if was, is := got[9], more[11]; len(more) != len(got) || is.Count != 292 ||
		!strings.HasPrefix(is.Message, combined+"at 3010") || is.Event().Name != was.Event().Name {
		t.Errorf("with one more\n%s", text(more))
	}
}

func TestTrimDropsTheOldest(t *testing.T) {
	t.Parallel()
	var all []Record
	for i := range 3000 {
		all = append(all, record(fmt.Sprint("pod", i%40), fmt.Sprint("r", i), i))
	}
	kept := trim(all)
	if len(kept) != mostOfAll || kept[len(kept)-1].Reason != "r2999" || kept[0].Reason != "r2000" {
		t.Errorf("%d kept, from %s", len(kept), kept[0].Reason)
	}
	kept = trim(append([]Record{record("quiet", "Started", 0)}, all[:2000]...)[:1000])
	if kept[0].Name != "quiet" {
		t.Errorf("one of another pod pushed it out: %s", kept[0].Name)
	}
	var one []Record
	for i := range 200 {
		one = append(one, record("web", fmt.Sprint("r", i), i))
	}
	if kept = trim(one); len(kept) != mostOfPod || kept[0].Reason != "r150" {
		t.Errorf("%d of one pod kept, from %s", len(kept), kept[0].Reason)
	}
}

// The lines of a writer are complete, whatever a writer that was killed left before them.
func TestALineThatWasCutOff(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Root: t.TempDir()}
	must(t, add(dirs.Events(), []Record{record("web", "Pulled", 1), record("web", "Started", 2)}))
	whole, err := os.ReadFile(dirs.Events())
	must(t, err)
	for cut := 0; cut < len(whole); cut += 11 {
		must(t, os.WriteFile(dirs.Events(), whole[:cut], 0o600))
		must(t, add(dirs.Events(), []Record{record("web", "BackOff", 3)}))
		got, err := Read(dirs)
		must(t, err)
		if len(got) == 0 || got[len(got)-1].Reason != "BackOff" {
			t.Fatalf("cut at %d: %s", cut, text(got))
		}
		if first := bytes.IndexByte(whole, '\n'); cut > first && got[0].Reason != "Pulled" {
			t.Fatalf("cut at %d: a whole line is lost: %s", cut, text(got))
		}
	}
}

// Several processes write, and each may rewrite the file.
func TestManyWriters(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Root: t.TempDir()}
	var writing sync.WaitGroup
	for w := range 4 {
		writing.Go(func() {
			for i := range 100 {
				if err := add(dirs.Events(), []Record{record(fmt.Sprint("pod", w), "Started", i)}); err != nil {
					t.Error(err)
				}
				if i%30 == w {
					f, err := lock(dirs.Events())
					if err == nil {
						err = shrink(dirs.Events())
						f.Close()
					}
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	writing.Wait()
	got, err := Read(dirs)
	must(t, err)
	for _, r := range got {
		if r.Count != 100 {
			t.Errorf("%s: %d, want 100", r.Name, r.Count)
		}
	}
	if len(got) != 4 {
		t.Errorf("got\n%s", text(got))
	}
}

func TestTheFileStaysSmall(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Root: t.TempDir()}
	long := record("web", "Unhealthy", 0)
	var size int64
	for i := range 30 {
		var some []Record
		for j := range 50 {
			r := long
			r.Name, r.Message = fmt.Sprint("pod", j), fmt.Sprint(i%40, strings.Repeat("x", 900))
			some = append(some, r)
		}
		must(t, add(dirs.Events(), some))
		info, err := os.Stat(dirs.Events())
		must(t, err)
		size = max(size, info.Size())
	}
	if size > 2*mostBytes {
		t.Errorf("grew to %d bytes", size)
	}
	if got, err := Read(dirs); err != nil || len(got) < 50 {
		t.Errorf("%d left: %v", len(got), err)
	}
}

func TestRecorder(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Root: t.TempDir()}
	r := New(dirs, "node1", slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	key := pod.Key{Namespace: "default", Name: "web-node1"}
	for range 3 {
		r.Record(pod.Event{Key: key, UID: "u", Container: "app", Warning: true, Reason: "BackOff", Message: strings.Repeat("ü", 1000)})
	}
	r.Record(pod.Event{Key: key, UID: "u", Container: "prep", Init: true, Reason: "Started"})
	r.Record(pod.Event{Reason: "FailedValidation", Message: "bad"})
	go func() { done <- r.Run(ctx) }()
	cancel() // what is left is written all the same
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	got, err := Read(dirs)
	must(t, err)
	if len(got) != 3 {
		t.Fatalf("got %s", text(got))
	}
	by := map[string]v1.Event{}
	for _, one := range got {
		by[one.Reason] = one.Event()
	}
	e, n := by["BackOff"], by["FailedValidation"]
	if path := by["Started"].InvolvedObject.FieldPath; path != "spec.initContainers{prep}" {
		t.Error(path)
	}
	if e.Count != 3 || e.Type != "Warning" || e.InvolvedObject.Kind != "Pod" || e.InvolvedObject.FieldPath != "spec.containers{app}" ||
		e.InvolvedObject.UID != "u" || e.Source.Host != "node1" || len(e.Message) > mostMessage || !strings.HasSuffix(e.Message, "ü…") {
		t.Errorf("%+v", e)
	}
	if n.InvolvedObject.Kind != "Node" || n.InvolvedObject.Name != "node1" || n.Namespace != "default" || n.Name == e.Name {
		t.Errorf("%+v", n)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestReader: what was read is used until the file has changed, is another one or is gone.
func TestReader(t *testing.T) {
	dirs := layout.Dirs{Root: t.TempDir()}
	r := NewReader(dirs)
	want := func(what string, n int) []Record {
		t.Helper()
		all, err := r.Read()
		if err != nil || len(all) != n {
			t.Errorf("%s: %d records, %v", what, len(all), err)
		}
		return all
	}
	want("no file", 0)
	if err := os.MkdirAll(filepath.Dir(dirs.Events()), 0o700); err != nil {
		t.Fatal(err)
	}
	one := func(reason string) []Record { return []Record{record("web", reason, 1)} }
	if err := add(dirs.Events(), one("a")); err != nil {
		t.Fatal(err)
	}
	first := want("one", 1)
	if again := want("the same", 1); &again[0] != &first[0] {
		t.Error("it was read again")
	}
	if err := add(dirs.Events(), one("b")); err != nil {
		t.Fatal(err)
	}
	want("two", 2)
	if err := os.Remove(dirs.Events()); err != nil {
		t.Fatal(err)
	}
	want("gone", 0)
	if err := add(dirs.Events(), one("c")); err != nil {
		t.Fatal(err)
	}
	want("another file", 1)
}
