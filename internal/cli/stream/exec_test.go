package stream

import (
	"bytes"
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/console"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/runtime"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fakeExecer records the arguments of Exec.
type fakeExecer struct {
	id   string
	cmd  []string
	size runtime.TermSize
	tty  bool
}

func (f *fakeExecer) Exec(_ context.Context, id string, cmd []string, s runtime.ExecIO) (int, error) {
	f.id, f.cmd, f.tty = id, cmd, s.TTY
	if s.Resize != nil {
		f.size = <-s.Resize
	}
	if s.Stdin != nil && !s.TTY {
		_, _ = io.Copy(s.Stdout, s.Stdin)
	}
	return 7, nil
}

func TestExecPassesStreams(t *testing.T) {
	t.Parallel()
	var out, errOut bytes.Buffer
	streams := cli.Streams{In: strings.NewReader("input"), Out: &out, ErrOut: &errOut}
	var f fakeExecer
	code, err := Command{Streams: streams, ID: "abc", Args: []string{"cat", "-u"}, Stdin: true, TTY: true}.Run(context.Background(), &f)
	must(t, err)
	if code != 7 || f.id != "abc" || !slices.Equal(f.cmd, []string{"cat", "-u"}) || f.tty || out.String() != "input" {
		t.Errorf("got %d, %+v, %q", code, f, out.String())
	}
	if !strings.Contains(errOut.String(), "not a terminal") {
		t.Errorf("said %q", errOut.String())
	}
	_, err = Command{Streams: streams, ID: "abc", Args: []string{"cat"}}.Run(context.Background(), &f)
	must(t, err)
	if out.String() != "input" {
		t.Error("read standard input without -i")
	}
}

func TestExecOnTerminal(t *testing.T) {
	t.Parallel()
	master, path, err := console.NewPty()
	must(t, err)
	defer master.Close()
	must(t, master.Resize(console.WinSize{Width: 91, Height: 33}))
	terminal, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer terminal.Close()
	var out, errOut bytes.Buffer
	streams := cli.Streams{In: terminal, Out: &out, ErrOut: &errOut}
	var f fakeExecer
	_, err = Command{Streams: streams, ID: "abc", Args: []string{"sh"}, Stdin: true, TTY: true}.Run(context.Background(), &f)
	must(t, err)
	if !f.tty || f.size != (runtime.TermSize{Width: 91, Height: 33}) || errOut.String() != "" {
		t.Errorf("got %+v, said %q", f, errOut.String())
	}
}
