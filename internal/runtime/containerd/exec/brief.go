package exec

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/instance"
	"podrun.io/podrun/internal/sys"
)

// pollPID is how often a command that is to be killed while runc is still starting it is looked for.
const pollPID = 5 * time.Millisecond

// brief is a command that runc is called for directly, as the shim would call it. containerd and the
// shim would use a third as much CPU time again as runc does, which counts for probes. In exchange
// nobody keeps the command's exit code if podrun is killed.
type brief struct {
	// runc is the program, and state the directory of its state.
	runc, state string
	systemd     bool
	container   string
	process     *specs.Process
	streams     runtime.ExecIO
}

// brief returns how to run a command without the shim; false if the shim must be asked: for a command
// with input or a terminal, with another runtime than runc, and where containerd is not podrun's own
// and its runc may be another one.
func (x *Execer) brief(c containers.Container, process *specs.Process, streams runtime.ExecIO) (brief, bool) {
	if !x.ownDaemon || !streams.Brief || streams.Stdin != nil || streams.TTY || !instance.IsRunc(c.Runtime.Name) {
		return brief{}, false
	}
	var options runcoptions.Options
	if c.Runtime.Options != nil {
		if err := typeurl.UnmarshalTo(c.Runtime.Options, &options); err != nil {
			return brief{}, false
		}
	}
	if options.BinaryName == "" {
		options.BinaryName = "runc"
	} else if options.BinaryName != x.dirs.StandIn("") {
		return brief{}, false
	}
	program, err := exec.LookPath(options.BinaryName)
	if err != nil || options.Root == "" {
		return brief{}, false
	}
	return brief{
		runc: program, state: filepath.Join(options.Root, x.namespace), systemd: options.SystemdCgroup,
		container: c.ID, process: process, streams: streams,
	}, true
}

// run runs the command and returns its exit code. The command is killed when ctx ends.
func (b brief) run(ctx context.Context, dir string) (code int, err error) {
	dir, err = os.MkdirTemp(dir, "brief-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }() // trusted: below a directory of root's alone
	process, pidFile, log := filepath.Join(dir, "process.json"), filepath.Join(dir, "pid"), filepath.Join(dir, "log")
	text, err := json.Marshal(b.process)
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(process, text, 0o600); err != nil { // trusted: in the directory that was just made
		return 0, err
	}
	args := []string{"--root", b.state, "--log", log, "--log-format", "json"}
	if b.systemd {
		args = append(args, "--systemd-cgroup")
	}
	args = append(args, "exec", "--process", process, "--pid-file", pidFile, b.container)
	cmd := exec.CommandContext(ctx, b.runc, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.Stdout, cmd.Stderr = b.streams.Stdout, b.streams.Stderr
	cmd.WaitDelay = drainTimeout
	cmd.Cancel = func() error { return kill(cmd.Process, pidFile) }
	err = cmd.Run()
	if cause := context.Cause(ctx); cause != nil {
		return 0, cause
	}
	if _, missing := os.Lstat(pidFile); missing != nil { // runc writes it once the command runs
		return 0, startError(log, err)
	}
	if cmd.ProcessState.Exited() {
		return cmd.ProcessState.ExitCode(), nil
	}
	return 0, fmt.Errorf("waiting for an exec'd process: %w", err) // runc has been killed
}

// kill kills the command that runc has started or is about to start, so that runc ends too. If the command
// has ended, runc waits for the output of what the command left behind, and is killed itself.
func kill(runc *os.Process, pidFile string) error {
	for deadline := time.Now().Add(removeTime); time.Now().Before(deadline); time.Sleep(pollPID) {
		if runc.Signal(unix.Signal(0)) != nil {
			return os.ErrProcessDone
		}
		text, err := os.ReadFile(pidFile) // trusted: written by runc, in a directory of root's alone
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			break
		}
		pid, err := strconv.Atoi(string(bytes.TrimSpace(text)))
		if err != nil {
			break
		}
		if err := killChild(runc.Pid, pid); !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		break
	}
	return runc.Kill()
}

// killChild kills the process pid if it is a child of parent, and not another one that got its PID.
func killChild(parent, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return os.ErrProcessDone
	}
	defer unix.Close(fd)
	if of, err := sys.Parent(pid); err != nil || of != parent {
		return os.ErrProcessDone
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
}

// startError returns the error of a command that runc did not start, from runc's log.
func startError(log string, err error) error {
	text, _ := os.ReadFile(log) // trusted: written by runc, in a directory of root's alone
	for line := range strings.Lines(string(text)) {
		var entry struct{ Level, Msg string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Level == "error" && entry.Msg != "" {
			err = errors.New(entry.Msg)
		}
	}
	if err == nil {
		err = errors.New("runc did not write its PID")
	}
	return fmt.Errorf("starting an exec'd process: %w", err)
}
