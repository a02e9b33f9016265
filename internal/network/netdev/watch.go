package netdev

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys"
	"podrun.io/podrun/internal/sys/shortage"
)

// settling is how long Watch waits after a change: others often come with it.
const settling = 500 * time.Millisecond

// longestPause is the longest one between attempts to watch.
const longestPause = time.Minute

// messageStart is how much of a message Watch reads, in bytes: its header and the fixed part of the known ones.
const messageStart = 32

// Watched is what Watch watches.
type Watched struct {
	// Protocol is netlink's, such as unix.NETLINK_ROUTE, and Groups are those that get its announcements.
	Protocol int
	Groups   []int
	// Matters reports whether a message is a change, by its first 32 bytes. nil: each is.
	Matters func(message []byte) bool
	// Also is watched too, unless it is nil.
	Also *Watched
}

// Watch calls changed at once, and then after each change that the kernel announces, until ctx ends, which is its
// error: once for all changes within half a second. It watches the network namespace of the calling thread. While
// something for it is used up, such as descriptors, it tries again, and calls changed when it can watch.
func Watch(ctx context.Context, w Watched, changed func()) error {
	for pause := settling; ; {
		switch err := w.once(ctx, changed); {
		case err == nil:
			pause = settling
		case ctx.Err() != nil || !shortage.Is(err) && !errors.Is(err, os.ErrNoDeadline):
			return err
		default:
			pause = min(2*pause, longestPause)
		}
		if err := sys.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// once calls changed, and returns when a change was announced meanwhile or after that.
func (w Watched) once(ctx context.Context, changed func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var waits []func() error
	for of := &w; of != nil; of = of.Also {
		socket, err := listen(of.Protocol, of.Groups) // first, so that no change is missed
		if err != nil {
			return err
		}
		defer socket.Close()
		waits = append(waits, func() error { return of.await(ctx, socket) })
	}
	changed()
	ended := make(chan error, len(waits))
	var all sync.WaitGroup
	for _, wait := range waits {
		all.Go(func() { ended <- wait() })
	}
	err := <-ended
	cancel()
	all.Wait()
	return err
}

func listen(protocol int, groups []int) (*os.File, error) {
	kind := unix.SOCK_RAW | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK // for Go's poller
	fd, err := unix.Socket(unix.AF_NETLINK, kind, protocol)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	address := unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	for _, g := range groups {
		address.Groups |= 1 << (g - 1)
	}
	if err := unix.Bind(fd, &address); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("bind", err)
	}
	f := os.NewFile(uintptr(fd), "netlink")
	if err := f.SetReadDeadline(time.Time{}); err != nil { // Go's poller could not take it
		f.Close()
		return nil, err
	}
	return f, nil
}

// await returns nil when a change was announced, or an error when ctx ends before.
func (w Watched) await(ctx context.Context, socket *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = socket.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	message := make([]byte, messageStart)
	for {
		n, err := socket.Read(message)
		switch {
		case errors.Is(err, unix.ENOBUFS): // more than the kernel keeps for a reader
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return err
		case n < len(message) || w.Matters == nil || w.Matters(message):
			return nil
		}
	}
}
