package report

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/containerlog"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/test"
)

// TestStream: each line is printed as soon as it is written, after the names of pod and container; CI services get
// groups. A run's end waits for what has been written.
func TestStream(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{
		"none":   "job/c | one\njob/c | two\njob/c | no end\n",
		"github": "::group::job/c\njob/c | one\njob/c | two\njob/c | no end\n::endgroup::\n",
	} {
		groups, err := NewGroups(kind, os.Getenv)
		must(t, err)
		out, dirs := &test.Buffer{}, layout.Dirs{Root: t.TempDir(), Run: t.TempDir(), Log: t.TempDir()}
		s := &Stream{Out: out, ErrOut: out, Groups: groups, Dirs: dirs, Log: slog.New(slog.DiscardHandler), Began: time.Now()}
		p := ofManifest(notDonePod("job", v1.ContainerStatus{
			ContainerID: "containerd://id", State: v1.ContainerState{
				Running: &v1.ContainerStateRunning{StartedAt: metav1.Now()},
			},
		}), "a.yaml")
		i := pod.Instance{ID: "id", Key: pod.KeyOf(p), UID: p.UID, Container: "c"}
		raw := dirs.Revision(p.UID).RawLog("c", "id")
		must(t, os.MkdirAll(raw, 0o755))
		must(t, os.WriteFile(filepath.Join(raw, "stdout.raw"), nil, 0o640))
		shim, err := os.OpenFile(filepath.Join(raw, "stdout.raw"), os.O_APPEND|os.O_WRONLY, 0o640)
		must(t, err)
		tailer := containerlog.New(containerlog.Options{Dirs: dirs, Log: s.Log})
		ctx, cancel := context.WithCancel(t.Context())
		var tailing sync.WaitGroup
		tailing.Go(func() { _ = tailer.Run(ctx) })
		tailer.Follow(i, 0)
		s.Follow(p)
		s.Follow(p) // which changes nothing
		for _, text := range []string{"one", "two"} {
			_, err := shim.WriteString(text + "\n")
			must(t, err)
			test.Eventually(t, text, func() bool { return strings.Contains(out.String(), "job/c | "+text+"\n") })
		}
		_, err = shim.WriteString("no end")
		must(t, err)
		must(t, shim.Close())
		p.Status.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.Now()}}
		s.Wait([]*v1.Pod{p}, time.Minute, nil)
		s.Close(nil)
		cancel()
		tailing.Wait()
		if got := out.String(); got != want {
			t.Errorf("%s: got %q, want %q", kind, got, want)
		}
	}
}

// TestStreamOfTheFirstSecond: what ended in the second in which the run began, of which the status has the whole
// second only, is printed; what was written before the run is not.
func TestStreamOfTheFirstSecond(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 2, 3, 4, 5, 900e6, time.UTC)
	for _, c := range []struct {
		restarts int32
		status   func(v1.ContainerStateTerminated) v1.ContainerStatus
	}{
		{0, func(s v1.ContainerStateTerminated) v1.ContainerStatus {
			return v1.ContainerStatus{State: v1.ContainerState{Terminated: &s}}
		}},
		{1, func(s v1.ContainerStateTerminated) v1.ContainerStatus {
			return v1.ContainerStatus{
				State:                v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}},
				LastTerminationState: v1.ContainerState{Terminated: &s},
			}
		}},
	} {
		out, dirs := &test.Buffer{}, layout.Dirs{Root: t.TempDir(), Run: t.TempDir(), Log: t.TempDir()}
		groups, err := NewGroups("none", os.Getenv)
		must(t, err)
		s := &Stream{Out: out, ErrOut: out, Groups: groups, Dirs: dirs, Log: slog.New(slog.DiscardHandler), Began: began}
		second := metav1.Time{Time: began.Truncate(time.Second)}
		status := c.status(v1.ContainerStateTerminated{ContainerID: "containerd://id", StartedAt: second, FinishedAt: second})
		status.ContainerID, status.RestartCount = "containerd://id", c.restarts
		p := ofManifest(notDonePod("job", status), "a.yaml")
		log := dirs.ContainerLog(pod.KeyOf(p), p.UID, "c", int(c.restarts))
		must(t, os.MkdirAll(filepath.Dir(log), 0o755))
		must(t, os.WriteFile(log, []byte("2026-01-02T03:04:05.800000000Z stdout F before\n"+
			"2026-01-02T03:04:05.950000000Z stdout F said\n"), 0o640))
		s.Follow(p)
		s.Wait([]*v1.Pod{p}, time.Minute, nil)
		s.Close(nil)
		if got, want := out.String(), "job/c | said\n"; got != want {
			t.Errorf("%d restarts: got %q, want %q", c.restarts, got, want)
		}
	}
}

// slowWriter is a buffer, every write to which takes a time.
type slowWriter struct {
	test.Buffer
	delay time.Duration
}

func (w *slowWriter) Write(text []byte) (int, error) {
	time.Sleep(w.delay)
	return w.Buffer.Write(text)
}

// TestStreamOfSlowReader: a slow reader gets the whole log of what has ended, however long that takes; at the next
// interrupt it does not, and a warning says so. A log that does not end is waited for while something is written only.
func TestStreamOfSlowReader(t *testing.T) {
	t.Parallel()
	const warning = "warning: the end of the log of job/c is missing here\n"
	for name, c := range map[string]struct {
		write time.Duration
		quiet time.Duration
		ends  bool // the container writes no more
		stop  time.Duration
		whole bool
		most  time.Duration
	}{
		"slow":         {150 * time.Millisecond, 50 * time.Millisecond, true, time.Hour, true, time.Minute},
		"interrupted":  {time.Hour, 50 * time.Millisecond, true, 100 * time.Millisecond, false, 5 * time.Second},
		"does not end": {0, 50 * time.Millisecond, false, time.Hour, true, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dirs := layout.Dirs{Root: t.TempDir(), Run: t.TempDir(), Log: t.TempDir()}
			out, errOut := &slowWriter{delay: c.write}, &test.Buffer{}
			s := &Stream{Out: out, ErrOut: errOut, Dirs: dirs, Log: slog.New(slog.DiscardHandler), Began: time.Now()}
			p := ofManifest(notDonePod("job", v1.ContainerStatus{
				ContainerID: "containerd://id", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
					ContainerID: "containerd://id", StartedAt: metav1.Now(), FinishedAt: metav1.Now(),
				}},
			}), "a.yaml")
			log := dirs.ContainerLog(pod.KeyOf(p), p.UID, "c", 0)
			must(t, os.MkdirAll(filepath.Dir(log), 0o755))
			const lines = 10_000 // more than ten writes
			line := time.Now().Add(time.Minute).UTC().Format("2006-01-02T15:04:05.000000000Z") + " stdout F 0123456789012345678901234567890123456789\n"
			must(t, os.WriteFile(log, []byte(strings.Repeat(line, lines)), 0o640))
			if !c.ends {
				raw := dirs.Revision(p.UID).RawLog("c", "id")
				must(t, os.MkdirAll(raw, 0o755))
				shim, err := os.OpenFile(filepath.Join(raw, "stdout.raw"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
				must(t, err)
				defer shim.Close()
			}
			stop := make(chan struct{})
			timer := time.AfterFunc(c.stop, func() { close(stop) })
			defer timer.Stop()
			began := time.Now()
			s.Follow(p)
			s.Wait([]*v1.Pod{p}, c.quiet, stop)
			s.Close(stop)
			if after := time.Since(began); after > c.most {
				t.Errorf("it took %s", after)
			}
			if n := strings.Count(out.String(), "\n"); (n == lines) != c.whole {
				t.Errorf("%d lines of %d are printed", n, lines)
			}
			want := warning
			if c.whole && c.ends {
				want = ""
			}
			if got := errOut.String(); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// TestStreamSwitchesGroups: there is one group at a time, and each of GitLab's has a name of its own.
func TestStreamSwitchesGroups(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{
		"github": "::group::a/c\na/c | 1\na/c | 2\n::endgroup::\n::group::b/c\nb/c | 3\n::endgroup::\n",
		"gitlab": "START podrun_1 a/c\na/c | 1\na/c | 2\nEND podrun_1 \nSTART podrun_2 b/c\nb/c | 3\nEND podrun_2 \n",
	} {
		groups, err := NewGroups(kind, os.Getenv)
		must(t, err)
		var out strings.Builder
		s := &Stream{Out: &out, Groups: groups}
		a := &streamWriter{stream: s, to: &out, name: "a/c", label: "a/c | "}
		b := &streamWriter{stream: s, to: &out, name: "b/c", label: "b/c | "}
		for _, text := range []string{"1\n2", "\n"} {
			_, err := a.Write([]byte(text))
			must(t, err)
		}
		_, err = b.Write([]byte("3"))
		must(t, err)
		b.end()
		s.endGroup("a/c") // which is over
		s.endGroup("b/c")
		got := out.String()
		for mark, short := range map[string]string{"section_start": "START", "section_end": "END"} {
			for {
				from := strings.Index(got, "\x1b[0K"+mark)
				if from < 0 {
					break
				}
				rest := got[from:]
				name := rest[strings.LastIndex(rest[:strings.Index(rest, "\r")], ":")+1 : strings.Index(rest, "\r")]
				got = got[:from] + short + " " + name + " " + rest[strings.Index(rest, "\r\x1b[0K")+len("\r\x1b[0K"):]
			}
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", kind, got, want)
		}
	}
}

// TestStreamBoundsLines: a container that writes no line feed does not fill the memory.
func TestStreamBoundsLines(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	w := &streamWriter{stream: &Stream{Out: &out}, to: &out, label: "a | "}
	for range 100 {
		_, err := w.Write([]byte(strings.Repeat("x", 4<<10)))
		must(t, err)
	}
	if len(w.rest) > longestLine || strings.Count(out.String(), "a | ") < 5 {
		t.Errorf("%d bytes are kept, %d written", len(w.rest), out.Len())
	}
}

// TestGroupsOfService: the kind of groups follows from the CI service's variables.
func TestGroupsOfService(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ flag, name, value, want string }{
		{"", "GITHUB_ACTIONS", "true", "github"}, {"", "GITLAB_CI", "true", "gitlab"}, {"", "", "", "none"},
		{"none", "GITLAB_CI", "true", "none"}, {"gitlab", "GITHUB_ACTIONS", "true", "gitlab"},
	} {
		g, err := NewGroups(c.flag, func(name string) string {
			if name == c.name {
				return c.value
			}
			return ""
		})
		if err != nil || g.kind != c.want {
			t.Errorf("%+v: %+v, %v", c, g, err)
		}
	}
	if _, err := NewGroups("jenkins", os.Getenv); err == nil {
		t.Error("an unknown kind is accepted")
	}
}
