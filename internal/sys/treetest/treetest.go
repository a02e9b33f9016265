// Package treetest builds directory trees that are expensive or hostile to walk, as a container may
// make them in a volume, for tests of code that walks such trees. It does not walk trees itself.
// Begin reading at Deep and Swap.
package treetest

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Deep creates depth nested directories in dir, all named d, with two files, a and z, beside each.
func Deep(t testing.TB, dir string, depth int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range depth {
		for _, name := range []string{"a", "z"} {
			fd, err := unix.Openat(at, name, unix.O_CREAT|unix.O_WRONLY, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			unix.Close(fd)
		}
		err := unix.Mkdirat(at, "d", 0o700)
		next, oerr := unix.Openat(at, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err := errors.Join(err, oerr); err != nil {
			t.Fatal(err)
		}
		unix.Close(at)
		at = next
	}
	unix.Close(at)
}

// FewDescriptors limits the process to a few more open files than it has, until the test ends.
func FewDescriptors(t testing.TB) {
	t.Helper()
	const more = 80
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	highest := 0
	for _, e := range open {
		n, _ := strconv.Atoi(e.Name())
		highest = max(highest, n)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) })
	few := unix.Rlimit{Cur: uint64(highest + more), Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
}

// Timely returns a context that ends with the test, or earlier when a walk takes far longer than
// the tree's size justifies.
func Timely(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// Swap exchanges two names as fast as it can, until the test calls the returned function.
func Swap(t testing.TB, a, b string) (end func()) {
	t.Helper()
	if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
			}
		}
	}()
	return func() { close(stop); <-done }
}
