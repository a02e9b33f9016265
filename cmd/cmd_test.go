package cmd

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/test"
)

var must, eventually = test.Must, test.Eventually

// newApp returns a command line that uses its own temporary directories.
func newApp(t *testing.T, in io.Reader) (a *app, out, errOut *test.Buffer) {
	t.Helper()
	dir := t.TempDir()
	out, errOut = &test.Buffer{}, &test.Buffer{}
	a = &app{Streams: cli.Streams{In: in, Out: out, ErrOut: errOut}, log: slog.New(slog.DiscardHandler)}
	a.RootDir, a.RunDir, a.LogDir = dir+"/root", dir+"/run", dir+"/log"
	must(t, os.MkdirAll(a.Dirs().StatusFiles().Dir(), 0o755))
	return a, out, errOut
}

func TestWatch(t *testing.T) {
	t.Parallel()
	a, out, _ := newApp(t, nil)
	status := a.Dirs().StatusFiles().Pod(pod.Key{Namespace: "default", Name: "web-node1"})
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
	must(t, sys.WriteFile(status, []byte("[]"), 0o600)) // cannot be read, which is not gone
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

func TestSize(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int64]string{0: "0B", 999: "999B", 1000: "1.0kB", 999_949: "999.9kB", 999_950: "1.0MB", 25_200_000: "25.2MB", 3e12: "3.0TB", 5e15: "5000.0TB"} {
		if got := pod.Bytes(bytes).String(); got != want {
			t.Errorf("%d: got %s, want %s", bytes, got, want)
		}
	}
}
