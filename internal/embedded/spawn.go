package embedded

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/cgroup"
)

// self is the executable of this process.
const self = "/proc/self/exe"

// dropEnv are variables that describe the process that starts the daemon, and so are not passed on.
var dropEnv = map[string]bool{
	"NOTIFY_SOCKET": true, "LISTEN_FDS": true, "LISTEN_PID": true, "LISTEN_FDNAMES": true,
	"WATCHDOG_PID": true, "WATCHDOG_USEC": true, "INVOCATION_ID": true, "JOURNAL_STREAM": true,
}

// spawn starts the daemon in a session of its own and returns when the daemon reports that it is
// ready. If ctx ends first, the daemon continues to run.
func spawn(ctx context.Context, o Options) error {
	path := logFile(o.Dirs)
	truncateLog(path)
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	offset, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	ready, tell, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()

	cmd := exec.Command(program(), o.Args...)
	cmd.Dir = "/"
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool {
		k, _, _ := strings.Cut(kv, "=")
		return dropEnv[k]
	})
	cmd.Env = append(cmd.Env, readyEnv+"="+strconv.Itoa(3))
	cmd.Stdout, cmd.Stderr = out, out
	cmd.ExtraFiles = []*os.File{tell}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	keepDescriptors()
	err = cmd.Start()
	tell.Close()
	if err != nil {
		return fmt.Errorf("starting the embedded containerd: %w", err)
	}
	if !o.Serves {
		detach(ctx, cmd.Process.Pid, o.Log)
	}
	// The goroutine outlives this call on purpose: it reaps a daemon that ends before this process.
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return awaitReady(ctx, ready, ended, func() string { return logTail(path, offset, 10) })
}

// detachTime bounds how long a start waits for systemd.
const detachTime = 5 * time.Second

// detach makes the daemon outlive the service that this process is of, such as a boot-time job: its shims, and with
// them the containers, would end too.
func detach(ctx context.Context, pid int, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, detachTime)
	defer cancel()
	// Its shims may outlive it there, so that there may be a scope of another one with this process ID.
	name := fmt.Sprintf("podrun-containerd-%d-%s.scope", pid, strings.ToLower(rand.Text()[:8]))
	if err := cgroup.StartScope(ctx, name, pid); err != nil {
		log.Warn("containers end when the service ends that has started podrun's containerd", "err", err)
	}
}

// awaitReady waits for the daemon's message on the pipe. If the pipe is closed without one, the
// daemon has died, and ended has its exit.
func awaitReady(ctx context.Context, ready *os.File, ended <-chan error, tail func() string) error {
	undo := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Unix(1, 0)) })
	defer undo()
	_, err := ready.Read(make([]byte, 16))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF):
		var exit *exec.ExitError
		if errors.As(<-ended, &exit) && exit.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
			return fmt.Errorf("the embedded containerd: %w (%w); its last words:\n%s", ErrKilled, exit, tail())
		}
		return fmt.Errorf("the embedded containerd ended before it was ready; its last words:\n%s", tail())
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("waiting for the embedded containerd to be ready: %w; its last words:\n%s",
			context.Cause(ctx), tail())
	default:
		return err
	}
}

// program returns the path of this program's file, even if the file was replaced since the process
// started; if there is no file at the path any more, /proc/self/exe.
func program() string {
	path, err := os.Executable()
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return self
	}
	return path
}

// keepDescriptors prevents the daemon from inheriting descriptors that this process has itself
// inherited, such as the pipe of a caller that waits for its end.
func keepDescriptors() {
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}
