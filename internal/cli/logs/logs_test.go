package logs

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/containerlog/cri"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/test"
)

var must, eventually = test.Must, test.Eventually

// noOwners reports that a podrun is running and that no process owns any pod.
type noOwners struct{}

func (noOwners) Kept(pod.Key) (kept, known bool)      { return false, true }
func (noOwners) LastKept(pod.Key) time.Time           { return time.Time{} }
func (noOwners) LastSeen() (at time.Time, alive bool) { return time.Now(), true }
func (noOwners) JustBegun(time.Duration) bool         { return false }

// newPrinter returns a printer that uses its own temporary directories.
func newPrinter(t *testing.T) (l *Printer, out, errOut *test.Buffer) {
	t.Helper()
	dir := t.TempDir()
	out, errOut = &test.Buffer{}, &test.Buffer{}
	reader := &query.Reader{
		Dirs:   layout.Dirs{Root: dir + "/root", Run: dir + "/run", Log: dir + "/log"},
		Owners: noOwners{},
		Log:    slog.New(slog.DiscardHandler),
	}
	return &Printer{Out: out, ErrOut: errOut, Pods: reader}, out, errOut
}

// TestLogsFollow: if no other process converts the log, logs -f does, and it exits with the
// container.
func TestLogsFollow(t *testing.T) {
	t.Parallel()
	l, out, errOut := newPrinter(t)
	inst := pod.Instance{ID: "id", Key: pod.Key{Namespace: "default", Name: "web-node1"}, UID: "u1", Container: "app"}
	raw := l.Pods.Dirs.Revision(inst.UID).RawLog(inst.Container, inst.ID)
	must(t, os.MkdirAll(raw, 0o755))
	shim, err := os.OpenFile(filepath.Join(raw, "stdout.raw"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	must(t, err)
	done := make(chan error)
	go func() {
		done <- l.readLog(context.Background(), inst, cri.ReadOptions{Follow: true}, l.Out, l.ErrOut)
	}()
	for _, text := range []string{"one\n", "two\n"} {
		_, err := shim.WriteString(text)
		must(t, err)
		eventually(t, text, func() bool { return strings.HasSuffix(out.String(), text) })
	}
	_, err = shim.WriteString("no end")
	must(t, errors.Join(err, shim.Close()))
	must(t, <-done)
	if out.String() != "one\ntwo\nno end" || errOut.String() != "" {
		t.Errorf("got %q and %q", out.String(), errOut.String())
	}
}

// TestLogsOfUnownedPod: no process starts the next instance of a pod without an owner, so logs -f
// of it ends even if a podrun is running.
func TestLogsOfUnownedPod(t *testing.T) {
	t.Parallel()
	l, _, _ := newPrinter(t)
	webPod := pod.Key{Namespace: "default", Name: "web-n"}
	must(t, os.MkdirAll(l.Pods.Dirs.StatusFiles().Dir(), 0o755))
	must(t, os.WriteFile(l.Pods.Dirs.StatusFiles().Pod(webPod), []byte(`{"metadata": {"name": "web-n", "namespace": "default", "uid": "u1"},
		"spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Running", "containerStatuses": [{"name": "c",
		"state": {"terminated": {"exitCode": 1}}}]}}`), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, more, err := l.successor(ctx, Log{inst: pod.Instance{Key: webPod, UID: "u1", Container: "c"}})
	if more || err != nil {
		t.Errorf("%t, %v", more, err)
	}
}

// TestPrefixOfLongLines: a line without an end is not kept in memory, but printed as several lines.
func TestPrefixOfLongLines(t *testing.T) {
	t.Parallel()
	var out test.Buffer
	p := &prefixer{to: &out, label: "a ", mu: &sync.Mutex{}}
	for range 100 {
		_, err := p.Write([]byte(strings.Repeat("x", 4<<10)))
		must(t, err)
	}
	if len(p.rest) > longestLine || strings.Count(out.String(), "a ") != 6 {
		t.Errorf("%d bytes are kept, %d written", len(p.rest), len(out.String()))
	}
	must(t, p.end())
	if n := strings.Count(out.String(), "x"); n != 400<<10 || !strings.HasSuffix(out.String(), "x\n") {
		t.Errorf("%d bytes of the line are written", n)
	}
}

// whole counts the bytes that are written, and the writes that end within a line.
type whole struct{ bytes, cut atomic.Int64 }

func (w *whole) Write(b []byte) (int, error) {
	if !bytes.HasSuffix(b, []byte{'\n'}) {
		w.cut.Add(1)
	}
	w.bytes.Add(int64(len(b)))
	return len(b), nil
}

// TestSeveralFollowedLogs: the lines of logs that are followed together are whole, also without prefixes.
func TestSeveralFollowedLogs(t *testing.T) {
	t.Parallel()
	l, _, errOut := newPrinter(t)
	out := &whole{}
	l.Out = out
	text := strings.Repeat(strings.Repeat("x", 1500)+"\n", 100)
	var all []Log
	for _, name := range []string{"a", "b"} {
		inst := pod.Instance{ID: "id" + name, Key: pod.Key{Namespace: "default", Name: "web-node1"}, UID: "u1", Container: name}
		raw := l.Pods.Dirs.Revision(inst.UID).RawLog(inst.Container, inst.ID)
		must(t, os.MkdirAll(raw, 0o755))
		must(t, os.WriteFile(filepath.Join(raw, "stdout.raw"), []byte(text), 0o640))
		all = append(all, Log{inst: inst, label: "[" + name + "] "})
	}
	must(t, l.Print(t.Context(), all, Options{Follow: true, Tail: -1}))
	if got := out.bytes.Load(); got != int64(2*len(text)) || out.cut.Load() > 0 || errOut.String() != "" {
		t.Errorf("%d bytes, %d writes end within a line; %s", got, out.cut.Load(), errOut)
	}
}
