package sys

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnOwnThread runs f on a thread that ends after it, and waits for f. So no other code of the
// process ever runs in the namespaces that f entered.
func OnOwnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The main thread cannot end: it would keep the namespaces for ever and show them as
			// those of the process. While it is locked here, another goroutine is sure to run on
			// another thread.
			defer runtime.UnlockOSThread()
			done <- OnOwnThread(f)
			return
		}
		done <- f() // never unlocked, so the thread ends with the goroutine
	}()
	return <-done
}
