package runtimetest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"podrun.io/podrun/internal/runtime"
)

func testExec(t *testing.T, s subject) {
	if !s.Runs {
		t.Skip("commands do not run in this runtime")
	}
	p := s.newPod("web-node", "uid-exec", "main")
	c := s.start(t, s.ready(t, p))
	var out, errOut bytes.Buffer
	code, err := s.Exec(t.Context(), c.ID, []string{"sh", "-c", "cat; echo bad >&2; exit 9"},
		runtime.ExecIO{Stdin: strings.NewReader("given\n"), Stdout: &out, Stderr: &errOut})
	if err != nil || code != 9 || out.String() != "given\n" || errOut.String() != "bad\n" {
		t.Errorf("%d, %v, %q, %q", code, err, out.String(), errOut.String())
	}
	_, err = s.Exec(t.Context(), c.ID, []string{NoSuchCommand}, runtime.ExecIO{})
	if err == nil || !strings.Contains(err.Error(), NoSuchCommand) {
		t.Errorf("a command that is not there: %v", err)
	}
	code, err = s.Exec(t.Context(), c.ID, []string{"sh", "-c", "kill -9 $$"}, runtime.ExecIO{})
	if code != 137 || err != nil {
		t.Errorf("a command that is killed: %d, %v", code, err)
	}
	resize := make(chan runtime.TermSize, 1)
	resize <- runtime.TermSize{Width: 101, Height: 33}
	out.Reset()
	code, err = s.Exec(t.Context(), c.ID,
		[]string{"sh", "-c", "while [ \"$(stty size)\" != '33 101' ]; do sleep 0.02; done; tty; echo $TERM"},
		runtime.ExecIO{Stdout: &out, TTY: true, Resize: resize})
	if err != nil || code != 0 ||
		!strings.Contains(out.String(), "/dev/pts/") || !strings.Contains(out.String(), "xterm") {
		t.Errorf("tty: %d, %v, %q", code, err, out.String())
	}
	s.remove(t, p)
}

func testExecCancelled(t *testing.T, s subject) {
	if !s.Runs {
		t.Skip("commands do not run in this runtime")
	}
	p := s.newPod("web-node", "uid-exec-cut", "main")
	c := s.start(t, s.ready(t, p))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Exec(ctx, c.ID, []string{"sleep", "12345"}, runtime.ExecIO{})
		done <- err
	}()
	runs := func() bool { return s.exec(t, c.ID, "ps | grep -q '[s]leep 12345'") == 0 }
	eventually(t, "the command runs", runs)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if runs() {
		t.Error("the command outlived its context")
	}
	s.remove(t, p)
}

// nobody is a writer that always fails.
type nobody struct{}

var errNobody = errors.New("nobody takes it")

func (nobody) Write([]byte) (int, error) { return 0, errNobody }

func testExecUnheard(t *testing.T, s subject) {
	if !s.Runs {
		t.Skip("commands do not run in this runtime")
	}
	p := s.newPod("web-node", "uid-exec-unheard", "main")
	c := s.start(t, s.ready(t, p))
	for i, streams := range []runtime.ExecIO{
		{Stdout: nobody{}},
		{Stderr: nobody{}},
		{Stdout: nobody{}, TTY: true},
		{Stdout: nobody{}, Stdin: strings.NewReader("x")},
	} {
		line := "exec yes"
		if streams.Stdout == nil {
			line = "exec yes >&2"
		}
		began := time.Now()
		if _, err := s.Exec(t.Context(), c.ID, []string{"sh", "-c", line}, streams); !errors.Is(err, errNobody) {
			t.Errorf("%d: %v", i, err)
		}
		if took := time.Since(began); took > time.Minute { // its remaining output, which never ends, blocks nothing
			t.Errorf("%d: it took %s", i, took)
		}
	}
	if s.exec(t, c.ID, "ps | grep '[y]es'") == 0 {
		t.Error("a command whose output cannot be written still runs")
	}
	// A process that the command leaves behind does not block Exec, even if it keeps the output
	// open.
	began := time.Now()
	var out bytes.Buffer
	code, err := s.Exec(t.Context(), c.ID, []string{"sh", "-c", "sleep 4321 & echo left; exit 3"}, runtime.ExecIO{Stdout: &out})
	if code != 3 || err != nil || out.String() != "left\n" {
		t.Errorf("%d, %v, %q", code, err, out.String())
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %s", took)
	}
	s.remove(t, p)
}
