package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	alone, err := tryFlock(users, unix.LOCK_EX)
	if err != nil {
		return err
	}
	if alone {
		o.Log.Info("podrun's containerd is of another podrun, and is replaced; containers run on", "pid", pid)
		err = end(ctx, o.Dirs, pid)
	} else {
		o.Log.Warn("podrun's containerd is of another podrun, and goes on until no other program uses it", "pid", pid)
	}
	// The lock was lost even if it could not be exclusive.
	return errors.Join(err, flock(users, unix.LOCK_SH))
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
