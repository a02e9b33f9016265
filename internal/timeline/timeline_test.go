package timeline

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/pod"
)

var update = flag.Bool("update", false, "write the golden files")

var zero = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// span is a span of pod d/NAME from second begin to second end; end < 0: it goes on.
func span(name, container string, kind Kind, begin, end float64) Span {
	at := func(s float64) time.Time { return zero.Add(time.Duration(s * float64(time.Second))) }
	s := Span{Namespace: "d", Pod: name, Container: container, Kind: kind, Begin: at(begin)}
	if end >= 0 {
		e := at(end)
		s.End = &e
	}
	return s
}

// boot is the start of a database and of what waits for it.
func boot() []Span {
	failed := span("web", "app", Backoff, 13, 15)
	failed.Error = "no <such> host"
	all := []Span{
		span("db", "", Sandbox, 0, 0.5), span("db", "db", Pull, 0.5, 4), span("db", "log", Pull, 0.5, 2),
		span("web", "app", Waiting, 0, 10), span("db", "db", Start, 4, 4.4), span("db", "db", Probe, 4.3, 9),
		span("web", "", Sandbox, 10, 10.5), span("web", "app", Start, 10.5, 11), span("web", "app", Run, 10.9, 13),
		failed, span("web", "app", Probe, 15, -1),
	}
	all[3].Detail = "WaitingForPods: starts after d/db"
	all[1].Detail, all[2].Detail = "registry.example/team/postgres:17.2-bookworm", "registry.example/log:1"
	return all
}

func critical(all []Span) (out []string) {
	for _, s := range all {
		if s.Critical {
			out = append(out, s.Pod+" "+s.Container+" "+string(s.Kind))
		}
	}
	return out
}

func TestPath(t *testing.T) {
	all := boot()
	Path(all, zero.Add(20*time.Second))
	want := []string{
		"db  sandbox", "db db pull", "web app waiting", "db db start", "db db probe", "web  sandbox", "web app start",
		"web app run", "web app backoff", "web app probe",
	}
	if got := critical(all); !slices.Equal(got, want) {
		t.Errorf("critical:\n%q, want\n%q", got, want)
	}
	// A back-off's end is seen a millisecond after what followed it has begun.
	pulls := []Span{span("a", "c", Pull, 0, 1), span("a", "c", Backoff, 1, 11.001), span("a", "c", Pull, 11, 12), span("a", "c", Backoff, 12, -1)}
	if Path(pulls, zero.Add(20*time.Second)); len(critical(pulls)) != 4 {
		t.Errorf("critical: %q", critical(pulls))
	}
	empty := []Span{span("a", "", Sandbox, 1, 1), span("b", "", Sandbox, 1, 1)}
	Path(empty, zero) // ends
	Path(nil, zero)
}

func TestLastRun(t *testing.T) {
	all := []Span{span("a", "", Sandbox, 0, 50), span("a", "a", Start, 20, 21), span("b", "", Sandbox, 109, 110),
		span("c", "", Sandbox, 170, 171), span("c", "c", Probe, 171, -1)}
	if got := LastRun(all, zero.Add(180*time.Second)); len(got) != 2 || got[0].Pod != "c" {
		t.Errorf("the last run is %v", got)
	}
	if got := LastRun(all[:3], zero); len(got) != 3 {
		t.Errorf("59 seconds without anything are the end of a run: %v", got)
	}
}

func TestGolden(t *testing.T) {
	all, now := boot(), zero.Add(20*time.Second)
	Path(all, now)
	data, err := JSON(all)
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string][]byte{
		"boot.svg": SVG(all, now), "boot.json": data, "boot.txt": []byte(Text(all, now, 80)),
		"wide.txt": []byte(Text(all, now, 140)),
	} {
		file := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s (%v) is\n%s", name, err, got)
		}
	}
}

// TestHostileNames: names, details and errors of strangers are text, and nothing else.
func TestHostileNames(t *testing.T) {
	evil := "</text><script>alert(1)</script>\"'&\x1b[2J\x00\n\u202e]]>\xff"
	s := Span{Namespace: evil, Pod: evil, Container: evil, Kind: Pull, Detail: evil, Error: evil, Begin: zero}
	drawn := SVG([]Span{s}, zero)
	d := xml.NewDecoder(bytes.NewReader(drawn))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("not XML: %v\n%s", err, drawn)
		}
		if e, is := token.(xml.StartElement); is &&
			!slices.Contains([]string{"svg", "style", "text", "g", "title", "rect"}, e.Name.Local) {
			t.Errorf("element %s", e.Name.Local)
		}
	}
	if text := Text([]Span{s}, zero, 80); strings.ContainsAny(text, "\x1b\x00\u202e") ||
		strings.Count(text, "\n") != 1+maxLines {
		t.Errorf("text %q", text)
	}
}

// TestTextFits: no line is wider than asked for, whatever is in it, and none is too narrow to be read.
func TestTextFits(t *testing.T) {
	all := append(boot(), span("web", "app", Waiting, 0, -1), span("web", "last", Start, 20, 20))
	all[12].Error = strings.Repeat("word ", 50)
	all[9].Error = strings.Repeat("word ", 50) + strings.Repeat("x", 300)
	all[10].Begin = zero.Add(-100 * time.Hour)
	for _, width := range []int{-1, minWidth, 80, 133, 1000} {
		text := Text(all, zero.Add(20*time.Second), width)
		if strings.Contains(text, " waiting (goes on)") {
			t.Error("a wait of which nothing is known is shown")
		}
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(line) - 1; n > max(width, minWidth) {
				t.Errorf("%d of %d: %q", n, width, line)
			}
		}
	}
	for _, d := range []time.Duration{
		999600 * time.Microsecond, 9995 * time.Millisecond, 59960 * time.Millisecond, 599999 * time.Minute / 1000,
		35999 * time.Second, 5000*time.Hour + time.Second,
	} {
		if text := rounded(d); len(text) > 8 {
			t.Errorf("%s is %q", d, text)
		}
	}
	if text := Text(nil, zero, 80); text != "" {
		t.Errorf("of nothing: %q", text)
	}
}

func TestBounds(t *testing.T) {
	r := New()
	for range maxPod + 5 {
		r.Begin(pod.Key{Namespace: "d", Name: "a"}, "", Start, "").End(nil)
	}
	r.Begin(pod.Key{Namespace: "d", Name: "b"}, "", Start, strings.Repeat("x", 10000)).End(nil)
	every := func(Span) bool { return true }
	if got := r.Spans(every); len(got) != maxPod+1 || len(got[maxPod].Detail) > maxText+3 {
		t.Errorf("%d spans of a pod are kept", len(got)-1)
	}
	for i := range maxAll + 100 {
		r.Begin(pod.Key{Namespace: "d", Name: time.Duration(i / maxPod).String()}, "", Start, "").End(nil)
	}
	if got := r.Spans(every); len(got) != maxAll || got[0].Pod == "a" {
		t.Errorf("%d spans are kept, the first of %s", len(got), got[0].Pod)
	}
	if len(r.of) > maxAll/maxPod+1 {
		t.Errorf("%d pods are counted", len(r.of))
	}
}

func TestConcurrent(t *testing.T) {
	r := New()
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 300 {
				open := r.Begin(pod.Key{Name: "a"}, "", Start, "")
				open.Becomes(Run, "", time.Now())
				r.Spans(func(Span) bool { return true })
				open.End(errors.New("late"))
			}
		})
	}
	running.Wait()
	var none *Recorder
	none.Begin(pod.Key{}, "", Start, "").End(nil)
	none.Begin(pod.Key{}, "", Start, "").Becomes(Run, "", zero)
	none.Observe(nil, nil, zero)
	none.Gone(pod.Key{}, zero)
}

// TestBecomes: a span is followed by another one without a gap, whose begin may move, and which has the error.
func TestBecomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		begin := time.Now()
		at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
		o := r.Begin(pod.Key{Namespace: "d", Name: "a"}, "c", Pull, "image")
		o.Becomes(Unpack, "image", at(2))
		o.Becomes(Unpack, "image", at(5)) // there was more to fetch
		o.Becomes(Unpack, "image", at(4))
		time.Sleep(9 * time.Second)
		o.End(errors.New("no space"))
		o.Becomes(Run, "", at(11)) // too late
		late := r.Begin(pod.Key{Namespace: "d", Name: "a"}, "late", Pull, "image")
		late.Becomes(Unpack, "image", at(5)) // it was fetched for another pod
		time.Sleep(time.Second)
		late.End(nil)
		var got []string
		for _, s := range r.Spans(func(Span) bool { return true }) {
			got = append(got, strings.Join([]string{
				s.Container, string(s.Kind), s.Begin.Sub(begin).String(), s.End.Sub(begin).String(), s.Detail, s.Error,
			}, " "))
		}
		want := []string{
			"c pull 0s 5s image ", "c unpack 5s 9s image no space", "late pull 9s 9s image ", "late unpack 9s 10s image ",
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// TestObserve: a container waits, runs until it is ready, crashes, backs off, and is gone.
func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "a"}}
		p.Spec.Containers = []v1.Container{{Name: "c", ReadinessProbe: &v1.Probe{}}}
		var seen []pod.Container
		show := func(s v1.ContainerStatus) {
			time.Sleep(time.Second)
			s.Name = "c"
			p.Status.ContainerStatuses = []v1.ContainerStatus{s}
			r.Observe(p, seen, time.Now())
			r.Observe(p, seen, time.Now()) // the same again changes nothing
		}
		waits := func(reason, message string) v1.ContainerState {
			return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}}
		}
		runs := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
		show(v1.ContainerStatus{State: waits("ContainerCreating", "")})
		show(v1.ContainerStatus{State: waits("CreateContainerConfigError", `secret "login" not found`)})
		seen = []pod.Container{{ID: "1", Name: "c", StartedAt: time.Now()}}
		show(v1.ContainerStatus{State: runs, ContainerID: "containerd://1"})
		show(v1.ContainerStatus{State: runs, ContainerID: "containerd://1", Ready: true})
		show(v1.ContainerStatus{State: runs, ContainerID: "containerd://1"}) // not ready any more: no start
		seen[0].FinishedAt, seen[0].ExitCode = time.Now(), 3
		ended := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: "containerd://1"}}
		show(v1.ContainerStatus{State: waits("CrashLoopBackOff", "back-off 10s"), LastTerminationState: ended})
		end := r.Begin(pod.KeyOf(p), "c", Start, "").End // what was waited for is over
		time.Sleep(time.Second)
		// Two more instances have run before a status came, of which the last one was killed.
		for i, id := range []string{"2", "3"} {
			seen = append(seen, pod.Container{ID: id, Name: "c", StartedAt: time.Now()})
			seen[i+1].ExitCode, seen[i+1].Reason = 9*i, []string{"", "OOMKilled"}[i]
			time.Sleep(time.Second)
			seen[i+1].FinishedAt = time.Now()
		}
		end(nil)
		show(v1.ContainerStatus{State: ended})
		seen = seen[2:] // the others are removed
		show(v1.ContainerStatus{State: ended})
		r.Gone(pod.KeyOf(p), time.Now())
		var got []string
		for _, s := range r.Spans(func(Span) bool { return true }) {
			got = append(got, string(s.Kind)+" "+s.End.Sub(s.Begin).String()+" "+s.Detail+s.Error)
		}
		want := []string{
			"waiting 1s ContainerCreating", `waiting 1s CreateContainerConfigError: secret "login" not found`, "probe 2s ",
			"run 3s exit code 3", "backoff 0s CrashLoopBackOff", "start 3s ", "run 1s ", "run 1s OOMKilled, exit code 9",
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if len(r.pods) != 0 {
			t.Error("a pod that is gone is still known")
		}
	})
}
