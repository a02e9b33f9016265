package sys

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// outputDelay is how long the output of a program that has ended may be held open by what it started.
	outputDelay = time.Second
	// mostOutput is how much of each output is kept.
	mostOutput = 1 << 20
)

// ErrNoProgram says that the machine does not have a program.
var ErrNoProgram = errors.New("the machine has no such program")

// Operand is what a program is to work on. Its makers check its form, and programs get it after "--": its text is never
// an option.
type Operand struct{ text string }

// PathOperand is an absolute path.
func PathOperand(path string) (Operand, error) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return Operand{}, fmt.Errorf("%q is no absolute path", path)
	}
	return Operand{path}, nil
}

// plain are the characters of a word.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

// WordOperand is a name of letters, digits, '.', '_' and '-', which does not begin with '-'.
func WordOperand(word string) (Operand, error) {
	wrong := func(r rune) bool {
		return !strings.ContainsRune(plain, r)
	}
	if word == "" || word[0] == '-' || strings.ContainsFunc(word, wrong) {
		return Operand{}, fmt.Errorf("%q is no plain name", word)
	}
	return Operand{word}, nil
}

// ExportOperand is a path of a server's, which pod.ServerName has returned.
func ExportOperand(server, path string) (Operand, error) {
	if server == "" || server[0] == '-' || strings.ContainsAny(server, "/=, \x00") {
		return Operand{}, fmt.Errorf("%q is no server", server)
	}
	dir, err := PathOperand(path)
	return Operand{server + ":" + dir.text}, err
}

// Program is a run of an external program. All that podrun runs, but itself and containers, it runs by this.
type Program struct {
	// Name is looked for in PATH, unless it is a path.
	Name string
	// Options are podrun's own words. What comes from a manifest, a container or a file is an operand.
	Options  []string
	Operands []Operand
	// Env is the environment; nil: podrun's.
	Env   []string
	Stdin []byte
}

// Output is what a program wrote, the beginning if it is much.
type Output struct {
	Stdout, Stderr []byte
	// Started: the program has run, whatever became of it.
	Started bool
}

// Text is all that was written, on one line or more.
func (o Output) Text() string {
	return strings.TrimSpace(string(bytes.TrimSpace(o.Stdout)) + "\n" + string(bytes.TrimSpace(o.Stderr)))
}

// String is the command line.
func (p Program) String() string { return strings.Join(append([]string{p.Name}, p.args()...), " ") }

func (p Program) args() []string {
	args := append([]string{}, p.Options...)
	if len(p.Operands) > 0 {
		args = append(args, "--")
	}
	for _, o := range p.Operands {
		args = append(args, o.text)
	}
	return args
}

// Run runs the program to its end, for at most limit. When the time is over or ctx ends it is killed with its process
// group, and so it is when podrun ends (EndPrograms), so that no other podrun runs it for the same thing beside it.
func (p Program) Run(ctx context.Context, limit time.Duration) (Output, error) {
	return p.run(ctx, limit, ofProcess)
}

func (p Program) run(ctx context.Context, limit time.Duration, all *groups) (Output, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %s", limit))
	defer cancel()
	var stdout, stderr beginning
	c := exec.CommandContext(ctx, p.Name, p.args()...)
	c.Env, c.Stdin, c.Stdout, c.Stderr = p.Env, bytes.NewReader(p.Stdin), &stdout, &stderr
	// The signal comes with the end of the thread that started it.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c.Cancel = func() error {
		err := unix.Kill(-c.Process.Pid, unix.SIGKILL)
		if errors.Is(err, unix.ESRCH) {
			return os.ErrProcessDone
		}
		return err
	}
	c.WaitDelay = outputDelay
	err := all.run(c)
	out := Output{Stdout: stdout.kept, Stderr: stderr.kept, Started: c.ProcessState != nil}
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return out, nil
	case ctx.Err() != nil:
		return out, fmt.Errorf("%s is killed: %w", filepath.Base(p.Name), context.Cause(ctx))
	case errors.Is(err, exec.ErrNotFound):
		return out, fmt.Errorf("%s: %w", p.Name, ErrNoProgram)
	}
	return out, err
}

// beginning keeps the first bytes that are written. It has no ReadFrom, which would go round the bound.
type beginning struct{ kept []byte }

// Write implements io.Writer.
func (b *beginning) Write(p []byte) (int, error) {
	b.kept = append(b.kept, p[:min(mostOutput-len(b.kept), len(p))]...)
	return len(p), nil
}
