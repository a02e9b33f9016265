package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// self is this very program.
const self = "/proc/self/exe"

// dropEnv are variables that speak of the process that starts the daemon and not of the machine.
var dropEnv = map[string]bool{
	"NOTIFY_SOCKET": true, "LISTEN_FDS": true, "LISTEN_PID": true, "LISTEN_FDNAMES": true,
	"WATCHDOG_PID": true, "WATCHDOG_USEC": true, "INVOCATION_ID": true, "JOURNAL_STREAM": true,
}

// spawn starts the daemon in a session of its own and returns when it says that it is ready. It leaves the
// daemon to itself if ctx ends first.
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
	// It outlives this call on purpose: a daemon that dies before this process must not stay a zombie.
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return awaitReady(ctx, ready, ended, func() string { return logTail(path, offset, 10) })
}

// awaitReady reads the daemon's word on the pipe. The pipe's end without it is the daemon's death, of which ended tells.
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
		return fmt.Errorf("waiting for the embedded containerd to be ready: %w; its last words:\n%s", context.Cause(ctx), tail())
	default:
		return err
	}
}

// program is this program's file, also when it has been replaced since it was started.
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

// keepDescriptors keeps the daemon from inheriting what this process has inherited itself, such as the
// pipe of a caller that waits for its end.
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
