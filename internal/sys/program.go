package sys

import (
	"bytes"
	"cmp"
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
	// outputDelay is how long Run waits for the output of a program that has ended while processes
	// that it started keep the output open.
	outputDelay = time.Second
	// defaultMaxOutput is how many bytes of each output are kept if Program.MaxOutput is 0.
	defaultMaxOutput = 1 << 20
)

// ErrNoProgram reports that the machine does not have the program.
var ErrNoProgram = errors.New("the machine has no such program")

// Operand is a file or name that a program works on. Its constructors check its form, and programs
// get it after "--", so that its text is never taken for an option.
type Operand struct{ text string }

// PathOperand returns the operand for an absolute path.
func PathOperand(path string) (Operand, error) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return Operand{}, fmt.Errorf("%q is not an absolute path", path)
	}
	return Operand{path}, nil
}

// plain are the characters of a word operand.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

// WordOperand returns the operand for a name of letters, digits, '.', '_' and '-' that does not
// begin with '-'.
func WordOperand(word string) (Operand, error) {
	wrong := func(r rune) bool {
		return !strings.ContainsRune(plain, r)
	}
	if word == "" || word[0] == '-' || strings.ContainsFunc(word, wrong) {
		return Operand{}, fmt.Errorf("%q is not a name of letters, digits, '.', '_' and '-'", word)
	}
	return Operand{word}, nil
}

// ExportOperand returns the operand server:path for an export of a file server; server is a result
// of pod.ServerName.
func ExportOperand(server, path string) (Operand, error) {
	if server == "" || server[0] == '-' || strings.ContainsAny(server, "/=, \x00") {
		return Operand{}, fmt.Errorf("%q is not the name of a server", server)
	}
	dir, err := PathOperand(path)
	return Operand{server + ":" + dir.text}, err
}

// Program is one execution of an external program. Podrun executes every program with it, except
// itself and containers.
type Program struct {
	// Name is looked up in PATH, unless it is a path.
	Name string
	// Options are fixed by podrun. Anything that comes from a manifest, a container or a file is an
	// operand.
	Options  []string
	Operands []Operand
	// Env is the environment; nil: podrun's.
	Env   []string
	Stdin []byte
	// MaxOutput is how much of each output is kept, in bytes; 0: a mebibyte.
	MaxOutput int
}

// Output is what a program wrote, truncated after mostOutput bytes of each stream.
type Output struct {
	Stdout, Stderr []byte
	// Truncated says that the program wrote more to its standard output than was kept.
	Truncated bool
	// Started: the program was started, whatever its result.
	Started bool
}

// Text returns the text of both streams without surrounding white space, on one or more lines.
func (o Output) Text() string {
	return strings.TrimSpace(string(bytes.TrimSpace(o.Stdout)) + "\n" + string(bytes.TrimSpace(o.Stderr)))
}

// String returns the command line.
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

// Run executes the program and waits for its end, at most for limit. If the limit is exceeded or
// ctx ends, the program is killed together with its process group. The same happens when podrun
// ends (EndPrograms), so that no other podrun executes it for the same purpose beside this one.
func (p Program) Run(ctx context.Context, limit time.Duration) (Output, error) {
	return p.run(ctx, limit, ofProcess)
}

func (p Program) run(ctx context.Context, limit time.Duration, all *groups) (Output, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %s", limit))
	defer cancel()
	most := cmp.Or(p.MaxOutput, defaultMaxOutput)
	stdout, stderr := beginning{most: most}, beginning{most: most}
	c := exec.CommandContext(ctx, p.Name, p.args()...)
	c.Env, c.Stdin, c.Stdout, c.Stderr = p.Env, bytes.NewReader(p.Stdin), &stdout, &stderr
	// The signal is sent when the thread that started the program ends.
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
	out := Output{Stdout: stdout.kept, Stderr: stderr.kept, Truncated: stdout.truncated, Started: c.ProcessState != nil}
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

// beginning keeps the first bytes that are written to it, at most most. It has no method ReadFrom,
// because io.Copy would use that and bypass the limit.
type beginning struct {
	most      int
	kept      []byte
	truncated bool
}

// Write implements io.Writer.
func (b *beginning) Write(p []byte) (int, error) {
	fits := min(b.most-len(b.kept), len(p))
	b.kept = append(b.kept, p[:fits]...)
	b.truncated = b.truncated || fits < len(p)
	return len(p), nil
}
