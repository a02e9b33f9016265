package netdev

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys"
)

// settling is how long Watch waits after a change: others often come with it.
const settling = 500 * time.Millisecond

// Watch calls changed at once, and then after each change that the kernel announces to the netlink groups, until ctx
// ends, which is its error: once for all changes within half a second. It watches the network namespace of the calling
// thread, and does not read what has changed.
func Watch(ctx context.Context, protocol int, groups []int, changed func()) error {
	for {
		socket, err := listen(protocol, groups) // first, so that no change is missed
		if err != nil {
			return err
		}
		changed()
		err = await(ctx, socket)
		_ = socket.Close()
		if err != nil {
			return err
		}
		if err := sys.Sleep(ctx, settling); err != nil {
			return err
		}
	}
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
	return os.NewFile(uintptr(fd), "netlink"), nil
}

// await returns nil when something was announced, or an error when ctx ends before.
func await(ctx context.Context, socket *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = socket.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err := socket.Read(make([]byte, 1))
	if errors.Is(err, unix.ENOBUFS) { // more than the kernel keeps for a reader
		return nil
	}
	if ended := ctx.Err(); ended != nil {
		return ended
	}
	return err
}
