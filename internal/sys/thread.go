package sys

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnOwnThread runs f on a thread that ends with it, so that nothing else of the process ever runs in the namespaces
// that f entered, and waits.
func OnOwnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The main thread cannot end: it would hold the namespaces for ever, and show them as the process's own.
			// While it is held here, another goroutine is sure to get another thread.
			defer runtime.UnlockOSThread()
			done <- OnOwnThread(f)
			return
		}
		done <- f() // never unlocked: the thread ends
	}()
	return <-done
}
