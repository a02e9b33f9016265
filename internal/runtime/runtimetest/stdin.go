package runtimetest

import (
	"errors"
	"fmt"
	"io"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/runtime"
)

// reading is a command that copies its input to /got and creates /end when the input has ended. A
// shell gives a background command an empty input unless it is redirected.
const reading = `exec 3<&0; { cat <&3 >/got; echo x >/end; } & ` + Script

// stdinCases are the combinations of a container's settings for its standard input.
var stdinCases = []struct {
	name             string
	stdin, once, tty bool
	// has means that there is a standard input; ends means that closing it ends it.
	has, ends bool
}{
	{name: "none"},
	{name: "once without one", once: true},
	{name: "open", stdin: true, has: true},
	{name: "once", stdin: true, once: true, has: true, ends: true},
	{name: "a terminal's", stdin: true, once: true, tty: true, has: true},
}

func testStdin(t *testing.T, s subject) {
	if _, err := s.OpenStdin(t.Context(), "nobody"); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("of nobody: %v", err)
	}
	for i, c := range stdinCases {
		p := s.newPod(fmt.Sprintf("in%d-node", i), fmt.Sprintf("uid-in%d", i), "main")
		main := &p.Spec.Containers[0]
		main.Stdin, main.StdinOnce, main.TTY = c.stdin, c.once, c.tty
		start := s.ready(t, p)
		for start.Attempt = range 2 { // each instance has its own standard input
			instance := s.start(t, start)
			w, err := s.OpenStdin(t.Context(), instance.ID)
			if !c.has {
				if !errors.Is(err, runtime.ErrNoStdin) {
					t.Errorf("%s: %v", c.name, err)
				}
				continue
			}
			must(t, err)
			other, err := s.OpenStdin(t.Context(), instance.ID)
			must(t, err)
			_, err = io.WriteString(other, "text\n")
			must(t, errors.Join(err, other.Close()))
			_, err = io.WriteString(w, "text\n") // the input did not end with its first writer
			must(t, errors.Join(err, w.Close()))
			ended := func() bool {
				w, err := s.OpenStdin(t.Context(), instance.ID)
				if err == nil {
					err = w.Close()
				}
				return errors.Is(err, runtime.ErrNoStdin)
			}
			if c.ends {
				eventually(t, c.name+" ends", ended)
			} else if ended() {
				t.Errorf("%s: it ended", c.name)
			}
			s.Exit(t, instance.ID, 0)
			s.ended(t, start)
			if _, err := s.OpenStdin(t.Context(), instance.ID); !errors.Is(err, runtime.ErrNotFound) {
				t.Errorf("%s: of an instance that has ended: %v", c.name, err)
			}
			must(t, s.ReapContainer(t.Context(), instance.ID, ""))
		}
		s.remove(t, p)
	}
}

// testStdinInside checks standard input from inside the container.
func testStdinInside(t *testing.T, s subject) {
	if !s.Runs {
		t.Skip("commands do not run in this runtime")
	}
	for i, c := range stdinCases {
		p := s.newPod(fmt.Sprintf("read%d-node", i), fmt.Sprintf("uid-read%d", i), "main")
		main := &p.Spec.Containers[0]
		main.Command = []string{"sh", "-c", reading}
		if c.tty {
			main.Command[2] = "stty -echo; cat >/got" // in the background, reading from the terminal would stop it
		}
		main.Stdin, main.StdinOnce, main.TTY = c.stdin, c.once, c.tty
		instance := s.start(t, s.ready(t, p))
		s.readsInput(t, c.has, c.ends, instance.ID, main)
		s.remove(t, p)
	}
}

func (s subject) readsInput(t *testing.T, has, ends bool, id string, main *v1.Container) {
	t.Helper()
	says := func(command, want string) {
		t.Helper()
		eventually(t, fmt.Sprintf("%s says %q (%+v)", command, want, main), func() bool {
			return s.exec(t, id, command+" >/dev/null 2>&1") == 0 && s.output(t, id, command) == want
		})
	}
	kind := "not a tty"
	if main.TTY {
		kind = "/dev/pts/0"
		must(t, s.ResizeTerminal(t.Context(), id, runtime.TermSize{Width: 101, Height: 33}))
		says("stty size </proc/1/fd/0", "33 101")
		says(`tr '\0' '\n' </proc/1/environ | grep ^TERM=`, "TERM=xterm")
	}
	says("tty </proc/1/fd/0 || true", kind) // not readable until runc's init has become the container's program
	if !has {
		says("cat /got /end", "x") // the input ends at once
		return
	}
	w, err := s.OpenStdin(t.Context(), id)
	must(t, err)
	_, err = io.WriteString(w, "one\n")
	must(t, err)
	says("cat /got", "one")
	if s.exec(t, id, "[ -e /end ]") == 0 {
		t.Errorf("an input ended that is written to: %+v", main)
	}
	must(t, w.Close())
	if ends {
		says("cat /end", "x")
		return
	}
	w, err = s.OpenStdin(t.Context(), id)
	must(t, err)
	_, err = io.WriteString(w, "two\n")
	must(t, errors.Join(err, w.Close()))
	says("cat /got", "one\ntwo")
}
