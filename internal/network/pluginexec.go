package network

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"
)

const (
	// addLimit bounds one sandbox's ADD; the kubelet gives the runtime as much. delLimit bounds its DEL.
	addLimit = 2 * time.Minute
	delLimit = time.Minute
	// outputDelay is how long the output of a plugin that has ended is waited for: a process that it left behind may
	// have it open for ever.
	outputDelay = time.Second
	// A plugin that is just being installed is tried again.
	busyTries = 5
	busyDelay = time.Second
)

// pluginExec executes plugins for CNI's library. A plugin is killed with its process group when the context ends.
type pluginExec struct {
	version.PluginDecoder
	log *slog.Logger
}

var _ invoke.Exec = (*pluginExec)(nil)

// FindInPath implements invoke.Exec.
func (e *pluginExec) FindInPath(plugin string, dirs []string) (string, error) {
	return invoke.FindInPath(plugin, dirs)
}

// ExecPlugin implements invoke.Exec.
func (e *pluginExec) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	for try := 1; ; try++ {
		out, err := e.execute(ctx, path, stdin, env)
		if !errors.Is(err, unix.ETXTBSY) || try == busyTries {
			return out, err
		}
		select {
		case <-time.After(busyDelay):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (e *pluginExec) execute(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(ctx, path)
	c.Env, c.Stdin, c.Stdout, c.Stderr = env, bytes.NewReader(stdin), &stdout, &stderr
	// It also ends with podrun, so that the next one does not call it for the same ID beside it. The signal comes with
	// the end of the thread that started it.
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
	err := c.Run()
	if stderr.Len() > 0 {
		e.log.Debug("CNI plugin wrote to its standard error", "plugin", path, "text", stderr.String())
	}
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return stdout.Bytes(), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("plugin %s is killed: %w", filepath.Base(path), context.Cause(ctx))
	case c.ProcessState == nil: // it was not started
		return nil, err
	}
	return nil, pluginError(err, stdout.Bytes(), stderr.Bytes())
}

// pluginError is what a plugin that failed says about it, on its standard output as CNI's specification has it.
func pluginError(err error, stdout, stderr []byte) error {
	var said types.Error
	if len(stdout) > 0 && json.Unmarshal(stdout, &said) == nil {
		return &said
	}
	if text := bytes.TrimSpace(append(stdout, stderr...)); len(text) > 0 {
		return fmt.Errorf("%w: %q", err, text)
	}
	return err
}
