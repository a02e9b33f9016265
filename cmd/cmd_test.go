package cmd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
)

// safeBuffer is a buffer that can be read while a command writes to it.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// newApp returns a command line that uses its own temporary directories.
func newApp(t *testing.T, in io.Reader) (a *app, out, errOut *safeBuffer) {
	t.Helper()
	dir := t.TempDir()
	out, errOut = &safeBuffer{}, &safeBuffer{}
	a = &app{Streams: cli.Streams{In: in, Out: out, ErrOut: errOut}, log: slog.New(slog.DiscardHandler)}
	a.rootDir, a.runDir, a.logDir = dir+"/root", dir+"/run", dir+"/log"
	must(t, os.MkdirAll(a.dirs().Statuses(), 0o755))
	return a, out, errOut
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never:", what)
		}
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	a, out, _ := newApp(t, nil)
	status := a.dirs().Status(pod.Key{Namespace: "default", Name: "web-node1"})
	write := func(phase string) {
		must(t, sys.WriteFile(status, []byte(`{"metadata": {"name": "web-node1", "namespace": "default"},
			"spec": {"containers": [{"name": "app"}]}, "status": {"phase": "`+phase+`"}}`), 0o600))
	}
	write("Pending")
	c := getCommand(a)
	c.SetArgs([]string{"pods", "-w"})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- c.ExecuteContext(ctx) }()
	lines := func() string {
		var text []string
		for line := range strings.Lines(out.String()) {
			text = append(text, strings.Join(strings.Fields(line)[:3], " "))
		}
		return strings.Join(text, "; ")
	}
	want := "NAME READY STATUS; web-node1 0/1 Pending"
	eventually(t, want, func() bool { return lines() == want })
	write("Running")
	want += "; web-node1 0/1 Running"
	eventually(t, want, func() bool { return lines() == want })
	must(t, os.WriteFile(status, []byte("{"), 0o600)) // cannot be read, which is not gone
	write("Succeeded")
	want += "; web-node1 0/1 Succeeded"
	eventually(t, want, func() bool { return lines() == want })
	must(t, os.Remove(status))
	want += "; web-node1 0/1 Deleted"
	eventually(t, want, func() bool { return lines() == want })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || a.exit(err) != cli.ExitInterrupted {
		t.Errorf("got %v", err)
	}
}

type fakeStore struct {
	imageStore
	archive string
}

func (f *fakeStore) Load(_ context.Context, archive io.Reader) ([]string, error) {
	b, err := io.ReadAll(archive)
	f.archive = string(b)
	return []string{"docker.io/library/web:1"}, err
}

func (*fakeStore) ListImages(context.Context) ([]pod.StoredImage, error) {
	return []pod.StoredImage{
		{Name: "docker.io/library/web:1", ID: "docker.io/library/web@sha256:0123456789abcdef", Size: 1_999_999, Used: true},
		{Name: "x:1", ID: "sha256:fedcba9876543210", Size: 12, CreatedAt: time.Now().Add(-3 * time.Hour)},
	}, nil
}

func (*fakeStore) PruneImages(context.Context) ([]string, error) { return nil, nil }

func TestImages(t *testing.T) {
	t.Parallel()
	a, out, _ := newApp(t, strings.NewReader("archive"))
	s := &fakeStore{}
	must(t, listImages(a, context.Background(), s))
	want := "IMAGE                     DIGEST         SIZE    AGE         USED\n" +
		"docker.io/library/web:1   0123456789ab   2.0MB   <unknown>   yes\n" +
		"x:1                       fedcba987654   12B     3h          no\n"
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
	must(t, loadImages(a, context.Background(), s, "-"))
	if s.archive != "archive" || !strings.HasSuffix(out.String(), "docker.io/library/web:1\n") {
		t.Errorf("loaded %q, said %q", s.archive, out.String())
	}
	err := loadImages(a, context.Background(), s, "/absent.tar")
	if a.exit(err) != cli.ExitUsage {
		t.Errorf("got %v", err)
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int64]string{0: "0B", 999: "999B", 1000: "1.0kB", 999_949: "999.9kB", 999_950: "1.0MB", 25_200_000: "25.2MB", 3e12: "3.0TB", 5e15: "5000.0TB"} {
		if got := pod.Bytes(bytes).String(); got != want {
			t.Errorf("%d: got %s, want %s", bytes, got, want)
		}
	}
}
