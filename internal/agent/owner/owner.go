// Package owner says which podrun process owns what. At most one process has the lock of the run
// directory (LockRun): a serve, or a down that was started while no serve ran. Each pod has one
// owner process (Locks, the implementation of reconcile.Owners). The statuses are kept up to date
// while a process has a Heartbeat. Each of the three is a file that the process locks, so the
// kernel ends the ownership of a process that was killed. Reader reads all of it, for commands that
// show pods.
//
// The package does not decide who should own a pod, and does nothing to pods: package reconcile
// acquires and releases them.
//
// Begin reading at Locks.
package owner

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/pod"
)

// The commands that own pods or the run directory. A pod is saved with Serve or Once as its owner.
const (
	Serve = "serve"
	Once  = "once"
	Down  = "down"
)

// ErrServing says that another podrun serve uses the same run directory. ErrEnding says that a
// podrun down does.
var (
	ErrServing = errors.New("podrun serve is running")
	ErrEnding  = errors.New("podrun down is running")
)

// OwnedError says that another process owns a pod that this one was asked to run or to remove.
type OwnedError struct {
	Key pod.Key
	// Holder describes the process, for people.
	Holder string
	// Serve reports that it is a serve, which keeps the pod as long as its manifest exists.
	Serve bool
}

func (e *OwnedError) Error() string { return fmt.Sprintf("pod %s is run by %s", e.Key, e.Holder) }

// ForkTime is how long a child of a killed process may still hold its files, and so its locks: from
// the fork until the exec.
const ForkTime = time.Second

// AfterForks calls lock, which takes a lock without waiting, until it does not fail with EWOULDBLOCK, at most for
// ForkTime.
func AfterForks(lock func() error) error {
	for end := time.Now().Add(ForkTime); ; time.Sleep(10 * time.Millisecond) {
		if err := lock(); !errors.Is(err, unix.EWOULDBLOCK) || !time.Now().Before(end) {
			return err
		}
	}
}
