package containerlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"podrun.io/podrun/internal/containerlog/cri"
)

// TestGivenUpStreamIsPassedOn: a stream that the shim has stopped copying is copied. The test plays
// the shim, which still has the pipe open and does not read it.
func TestGivenUpStreamIsPassedOn(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	in, out, err := os.Pipe()
	must(t, err)
	defer in.Close()
	// More than a pipe holds.
	child := exec.Command("sh", "-c", `i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; exec sleep 1000`)
	child.Stdout = out
	must(t, child.Start())
	must(t, out.Close())
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })

	// As long as the shim has the file open it is not interfered with.
	shim, err := os.OpenFile(rawPath(r.rawDir(), cri.Stdout), os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	if o, err := orphanOf(r.rawDir(), cri.Stdout, child.Process.Pid); o != nil || err != nil {
		t.Fatalf("%v, %v", o, err)
	}
	must(t, shim.Close())
	if o, err := orphanOf(r.rawDir(), cri.Stderr, child.Process.Pid); o != nil || err != nil {
		t.Fatalf("a stream that is no pipe: %v, %v", o, err)
	}
	o, err := orphanOf(r.rawDir(), cri.Stdout, child.Process.Pid)
	if err != nil || o == nil {
		t.Fatalf("%v, %v", o, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	passed := make(chan error, 1)
	go func() { passed <- o.copy(ctx, quiet) }()
	eventually(t, "the last line", func() bool {
		raw, _ := os.ReadFile(rawPath(r.rawDir(), cri.Stdout))
		return strings.HasSuffix(string(raw), "line 19999\n")
	})
	if again, err := orphanOf(r.rawDir(), cri.Stdout, child.Process.Pid); again != nil || err != nil {
		t.Errorf("passed on twice: %v, %v", again, err)
	}
	// Podrun ends, and another goes on where it was.
	cancel()
	if err := <-passed; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if o, err = orphanOf(r.rawDir(), cri.Stdout, child.Process.Pid); err != nil || o == nil {
		t.Fatalf("%v, %v", o, err)
	}
	go func() { passed <- o.copy(context.Background(), quiet) }()
	must(t, child.Process.Kill())
	select {
	case err := <-passed:
		must(t, err)
	case <-time.After(time.Minute):
		t.Fatal("the end of a stream is not noticed")
	}
	var want strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	must(t, catchUp(context.Background(), r.dirs, r.inst))
	if got, _ := r.read(cri.ReadOptions{}); got != want.String() {
		t.Errorf("%d bytes of %d", len(got), want.Len())
	}
}

// TestPassingOnWaitsForSpace: on a full disk nothing is read from the pipe; the log has one message
// about that and one when copying continues.
func TestPassingOnWaitsForSpace(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	raw, err := os.OpenFile(rawPath(r.rawDir(), cri.Stdout), os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	in, out, err := os.Pipe()
	must(t, err)
	_, err = out.WriteString("a line\n")
	must(t, errors.Join(err, out.Close()))
	var said bytes.Buffer
	looks := 0
	o := &orphan{pipe: in, raw: raw, space: func(*os.File) bool {
		looks++
		if text, _ := os.ReadFile(raw.Name()); looks <= 3 && len(text) > 0 {
			t.Errorf("%q was used from the pipe", text)
		}
		return looks > 3
	}}
	must(t, o.copy(context.Background(), slog.New(slog.NewTextHandler(&said, nil))))
	if text, _ := os.ReadFile(raw.Name()); string(text) != "a line\n" {
		t.Errorf("passed on: %q", text)
	}
	for _, once := range []string{
		"level=WARN msg=\"container output waits for free disk space",
		"level=INFO msg=\"container output continues",
	} {
		if strings.Count(said.String(), once) != 1 {
			t.Errorf("said:\n%s", said.String())
		}
	}
}
