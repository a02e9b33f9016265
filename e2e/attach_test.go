package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/console"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/test"
)

// screen is a terminal with a podrun command on it.
type screen struct {
	n      *node
	cmd    *exec.Cmd
	master console.Console
	seen   test.Buffer // what the terminal shows
	ended  chan error
}

// onTerminal starts a command on a terminal of 90 by 30.
func (n *node) onTerminal(args ...string) *screen {
	n.t.Helper()
	master, path, err := console.NewPty()
	must(n.t, err)
	must(n.t, master.Resize(console.WinSize{Width: 90, Height: 30}))
	terminal, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY, 0)
	must(n.t, err)
	s := &screen{n: n, cmd: n.command(context.Background(), args...), master: master, ended: make(chan error, 1)}
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = terminal, terminal, terminal
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(n.t, s.cmd.Start())
	must(n.t, terminal.Close())
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&s.seen, master) // until nobody has the terminal
	}()
	go func() {
		err := s.cmd.Wait()
		<-read
		master.Close()
		s.ended <- err
	}()
	return s
}

// sees waits until the terminal shows a text.
func (s *screen) sees(want string) {
	s.n.t.Helper()
	s.n.await(fmt.Sprintf("%q on the terminal", want), func() error {
		if got := s.seen.String(); !strings.Contains(got, want) {
			return fmt.Errorf("it shows %q", got)
		}
		return nil
	})
}

func (s *screen) types(keys string) {
	s.n.t.Helper()
	_, err := io.WriteString(s.master, keys)
	must(s.n.t, err)
}

// interrupts ends what a shell runs by a key.
func (s *screen) interrupts() {
	s.n.t.Helper()
	s.types("sh -c 'echo run''ning; sleep 1000'\r")
	s.sees("\r\nrunning\r\n")
	s.types("\x03")
	s.types("echo code $?\r")
	s.sees("\r\ncode 130\r\n")
}

// code waits for the command's end.
func (s *screen) code() int {
	s.n.t.Helper()
	select {
	case err := <-s.ended:
		if err != nil && s.cmd.ProcessState == nil {
			s.n.t.Fatal(err)
		}
	case <-time.After(patience):
		_ = s.cmd.Process.Signal(syscall.SIGQUIT) // Go writes what it waits for
		<-s.ended
		s.n.t.Fatalf("podrun did not end: %s", s.seen.String())
	}
	return s.cmd.ProcessState.ExitCode()
}

// consoles is a pod with a shell on a terminal, and containers that copy their input to their output.
const consoles = `apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: shell, image: podrun.example/box:1, command: [sh, -i], stdin: true, tty: true}
  - {name: cat, image: podrun.example/box:1, command: [sh, -c, 'echo ready; cat; echo end; sleep 1d'], stdin: true}
  - {name: once, image: podrun.example/box:1, command: [sh, -c, 'cat; echo end'], stdin: true, stdinOnce: true}
  - {name: none, image: podrun.example/box:1, command: [sh, -c, 'cat; tty; echo TERM=$TERM; sleep 1d']}
`

// logged waits until a container's log holds a text.
func (n *node) logged(container, want string) {
	n.t.Helper()
	n.await(fmt.Sprintf("%q in the log of %s", want, container), func() error {
		if r := n.run("logs", "a", "-c", container); !strings.Contains(r.stdout, want) {
			return errors.New(r.String())
		}
		return nil
	})
}

// TestAttach: a person at a container's terminal, and pipes to containers' inputs, over podrun's death.
func TestAttach(t *testing.T) {
	n := newNode(t)
	n.write("a.yaml", consoles)
	n.serve()
	n.ready("a-n")
	n.logged("none", "not a tty\nTERM=\n") // its input ended at once

	s := n.onTerminal("attach", "-it", "a", "-c", "shell")
	s.sees("try pressing enter")
	s.types("stty size; echo $((6*7)) $TERM\r")
	s.sees("30 90\r\n42 xterm\r\n")
	must(t, s.master.Resize(console.WinSize{Width: 70, Height: 20}))
	s.interrupts()
	s.types("stty size\r")
	s.sees("20 70\r\n")
	// Neither podrun's end nor a crowd disturbs the session.
	n.end(syscall.SIGKILL)
	other := n.onTerminal("attach", "-it", "a", "-c", "shell", "--detach-keys", "ctrl-x")
	other.sees("try pressing enter")
	other.types("echo from $((50+5))\r")
	s.sees("from 55\r\n")
	n.serve()
	s.types("echo still $((40+4))\r")
	other.sees("still 44\r\n")
	other.types("\x18")
	if code := other.code(); code != 0 {
		t.Errorf("detached: exit %d, %q", code, other.seen.String())
	}
	must(t, s.cmd.Process.Kill()) // a person's end is not the shell's
	s.code()
	s = n.onTerminal("attach", "-it", "a")
	s.sees("Defaulted container")
	s.sees("try pressing enter")
	s.types("echo after $((60+6))\r")
	s.sees("after 66\r\n")
	n.logged("shell", "after 66\r\n")
	n.logged("shell", "42 xterm\r\n")
	s.types("exit 3\r")
	if code := s.code(); code != 0 {
		t.Errorf("the shell has ended: exit %d, %q", code, s.seen.String())
	}
	p := n.awaitPod("a-n", "to have a new shell", ran("shell", 1))
	for _, other := range []string{"cat", "once", "none"} {
		if err := ran(other, 0)(p); err != nil {
			t.Error(err)
		}
	}
	n.pipes()
}

// ran complains unless the container runs and has been restarted so often.
func ran(container string, restarts int32) func(*v1.Pod) error {
	return func(p *v1.Pod) error {
		for _, s := range p.Status.ContainerStatuses {
			if s.Name == container && s.RestartCount == restarts && s.State.Running != nil {
				return nil
			}
		}
		return errors.New(asJSON(p.Status.ContainerStatuses))
	}
}

// pipes writes to the inputs of the containers without a terminal.
func (n *node) pipes() {
	t := n.t
	if r := n.runIn("one\n", "attach", "-i", "a", "-c", "cat"); r != (result{0, "one\n", ""}) {
		t.Errorf("attach: %v", r)
	}
	if r := n.runIn("two\n", "attach", "-i", "a", "-c", "cat"); r != (result{0, "two\n", ""}) {
		t.Errorf("attached again: %v", r)
	}
	n.logged("cat", "ready\none\ntwo\n")
	if got := n.ok("logs", "a", "-c", "cat"); got != "ready\none\ntwo\n" {
		t.Errorf("the input that nothing ends: %q", got)
	}
	big := strings.Repeat("0123456789abcde\n", 1<<16)
	if r := n.runIn(big, "attach", "-i", "a", "-c", "once"); r.code != 0 || r.stdout != big+"end\n" {
		t.Errorf("once: exit %d, %d bytes of output, %s", r.code, len(r.stdout), r.stderr)
	}
	n.awaitPod("a-n", "to run once again", ran("once", 1))
	// The kernel ends the input of one that was attached and is killed.
	killed := n.command(context.Background(), "attach", "-i", "a", "-c", "once")
	in, err := killed.StdinPipe()
	must(t, err)
	out, err := killed.StdoutPipe()
	must(t, err)
	must(t, killed.Start())
	_, err = io.WriteString(in, "half")
	must(t, err)
	half := make([]byte, 4)
	_, err = io.ReadFull(out, half)
	must(t, err)
	must(t, killed.Process.Kill())
	_ = killed.Wait() // killed
	n.awaitPod("a-n", "to have met the end of its input", ran("once", 2))
	if r := n.runIn("", "attach", "-i", "a", "-c", "none"); r.code != 1 || !strings.Contains(r.stderr, "has no standard input") {
		t.Errorf("one without an input: %v", r)
	}
	n.await("nothing to be left of instances that have ended", func() error {
		left, err := filepath.Glob(n.path("root", "pods", "*", "log.once.[01]", "*"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%q", left)
		}
		return err
	})
}

// TestExecOnTerminal: a shell beside what runs; it is hung up when its person goes, however that happens.
func TestExecOnTerminal(t *testing.T) {
	// Commands that inherit from nohup that SIGHUP is ignored would not end by it.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	n := newNode(t)
	if r := n.once(manifest("a", "Always", forever)); r.code != 0 {
		t.Fatal(r)
	}
	s := n.onTerminal("exec", "-it", "a", "--", "sh")
	s.types("stty size; echo $((6*7)) $TERM\r")
	s.sees("30 90\r\n42 xterm\r\n")
	must(t, s.master.Resize(console.WinSize{Width: 70, Height: 20}))
	s.interrupts()
	s.types("stty size; exit 5\r")
	s.sees("20 70\r\n")
	if code := s.code(); code != 5 {
		t.Errorf("exit %d, %q", code, s.seen.String())
	}
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGHUP} {
		s := n.onTerminal("exec", "-it", "a", "--", "sh", "-c", "echo here; exec sleep 4321")
		s.sees("here")
		cat := n.command(context.Background(), "exec", "-i", "a", "--", "cat")
		in, err := cat.StdinPipe()
		must(t, err)
		out, err := cat.StdoutPipe()
		must(t, err)
		must(t, cat.Start())
		_, err = io.WriteString(in, "x")
		must(t, err)
		_, err = io.ReadFull(out, make([]byte, 1))
		must(t, err)
		must(t, errors.Join(s.cmd.Process.Signal(signal), cat.Process.Signal(signal)))
		s.code()
		_ = cat.Wait() // killed
		n.says("a", "ps | grep -cE '[s]leep 4321| cat$' || true", "0")
	}
}

// TestSessionsOutlive: a person's sessions, and pipes, in a pod that has users of its own where that can be
// had, go on while containerd dies and is started again; they end with the pod's shim, and say so.
func TestSessionsOutlive(t *testing.T) {
	n := newNode(t)
	must(t, os.Chmod(n.dir, 0o711)) // as /run and /var/lib are
	text := consoles
	if os.Getenv("PODRUN_E2E_CONTAINERD") != "debian" { // it is too old
		text = strings.Replace(consoles, "spec:\n", "spec:\n  hostUsers: false\n", 1)
	}
	n.write("a.yaml", text)
	n.serve()
	p := n.ready("a-n")
	attached, shell := n.onTerminal("attach", "-it", "a", "-c", "shell"), n.onTerminal("exec", "-it", "a", "-c", "cat", "--", "sh")
	attached.sees("try pressing enter")
	shell.types("echo $((6*7))\r")
	shell.sees("\r\n42\r\n")
	cat := n.command(context.Background(), "exec", "-i", "a", "-c", "cat", "--", "sh", "-c", "cat; exit 4")
	in, err := cat.StdinPipe()
	must(t, err)
	var out, said bytes.Buffer
	cat.Stdout, cat.Stderr = &out, &said
	must(t, cat.Start())
	big := strings.Repeat("0123456789abcde\n", 1<<16)
	_, err = io.WriteString(in, big)
	must(t, err)
	if setup.address == "embedded" { // others are shared with other cases
		must(t, syscall.Kill(n.daemon(), syscall.SIGKILL))
	}
	_, err = io.WriteString(in, big)
	must(t, errors.Join(err, in.Close()))
	_ = cat.Wait() // its exit code says it
	if code := cat.ProcessState.ExitCode(); code != 4 || out.String() != big+big {
		t.Errorf("a pipe: exit %d, %d bytes of output, %s", code, out.Len(), said.String())
	}
	attached.types("echo $((40+4))\r")
	attached.sees("\r\n44\r\n")
	shell.types("echo $((50+5))\r")
	shell.sees("\r\n55\r\n")
	for _, pid := range n.processes() {
		if slices.Contains(children(pid), n.mainPID(p, "shell")) {
			must(t, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
	if code := attached.code(); code != 0 {
		t.Errorf("attach: exit %d, %q", code, attached.seen.String())
	}
	if code := shell.code(); code != 1 || !strings.Contains(shell.seen.String(), `container "cat" in pod "a-n" is not running any more`) {
		t.Errorf("exec: exit %d, %q", code, shell.seen.String())
	}
	n.awaitPod("a-n", "to have a new shell", ran("shell", 1))
}
