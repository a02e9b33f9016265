package yielding

import (
	"context"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// hangupPeriod is how often it is checked whether a client is still there.
const hangupPeriod = 2 * time.Second

// AtHangup calls then when the client of a request with the context ctx has hung up, which net/http does not see while
// the client has sent more than the request. It returns when it has done so, or when ctx ends, and at once if the
// request has not come over a Listener.
func AtHangup(ctx context.Context, then func()) {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok {
		return
	}
	raw, ok := c.Conn.(syscall.Conn)
	if !ok {
		return
	}
	socket, err := raw.SyscallConn()
	if err != nil {
		return
	}
	for !hungUp(socket) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(hangupPeriod):
		}
	}
	then()
}

// hungUp reports whether the other end of a connection has closed it, or this one.
func hungUp(socket syscall.RawConn) bool {
	gone := false
	err := socket.Control(func(fd uintptr) {
		of := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(of, 0)
		gone = err == nil && n > 0
	})
	return gone || err != nil
}
