package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
)

// upgradeTime is how long a daemon may take to end after SIGTERM before it is killed, which containers survive as well.
const upgradeTime = 5 * time.Second

// upgrade ends a daemon that runs another file than this program's, such as the one that this program has replaced,
// unless another client has a lease of it. users is this client's lock: it is shared before and after.
func upgrade(ctx context.Context, o Options, users *os.File) error {
	pid := PID(o.Dirs)
	if pid == 0 || runsThisProgram(pid) {
		return nil
	}
	if !hasOpen(pid, daemonLock(o.Dirs)) { // it is in another PID namespace, and the number is another process's here
		o.Log.Warn("podrun's containerd is of another container, and is not replaced")
		return nil
	}
	moment, cancel := context.WithTimeout(ctx, aloneTime) // most other clients are gone then
	defer cancel()
	err := awaitFlock(moment, users, unix.LOCK_EX)
	switch {
	case err == nil:
		o.Log.Info("podrun's containerd is of another podrun, and is replaced; containers run on", "pid", pid)
		err = end(ctx, o.Dirs, pid)
	case moment.Err() != nil && ctx.Err() == nil:
		o.Log.Warn("podrun's containerd is of another podrun and others use it: it is replaced when serve is restarted",
			"pid", pid)
		err = nil
	}
	if err != nil {
		return err
	}
	// The lock was lost even if it could not be exclusive. A daemon that exits may have it.
	return awaitFlock(ctx, users, unix.LOCK_SH)
}

// aloneTime is how long upgrade waits for other clients of a daemon.
const aloneTime = time.Second

// hasOpen reports whether the process has the file at path open.
func hasOpen(pid int, path string) bool {
	file, err := os.Stat(path)
	if err != nil {
		return false
	}
	open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // its error is one of the pattern
	return slices.ContainsFunc(open, func(link string) bool {
		one, err := os.Stat(link)
		return err == nil && os.SameFile(one, file)
	})
}

// runsThisProgram reports whether the process executes this program's file. It reports true if that cannot be read.
func runsThisProgram(pid int) bool {
	other, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return true
	}
	own, err := os.Stat(program())
	return err != nil || os.SameFile(other, own)
}

// end ends the daemon with that process ID.
func end(ctx context.Context, d layout.Dirs, pid int) error {
	process, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ending the embedded containerd: %w", err)
	}
	defer unix.Close(process)
	signal := unix.SIGTERM
	for deadline := time.Now(); PID(d) == pid; {
		if !time.Now().Before(deadline) {
			if err := unix.PidfdSendSignal(process, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("ending the embedded containerd: %w", err)
			}
			signal, deadline = unix.SIGKILL, time.Now().Add(upgradeTime)
		}
		if err := pause(ctx, lockPoll); err != nil {
			return err
		}
	}
	return nil
}
