// Package shortage is about what processes of other users can use up for this one: descriptors, watches of epoll (which
// containers of root share with it), and memory. It does not reserve any of it.
//
// Begin reading at Accepting.
package shortage

import (
	"errors"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Is reports whether an operation failed because this process or the machine was short of something, whatever is at the
// other end of the connection.
func Is(err error) bool {
	return slices.ContainsFunc([]error{unix.EMFILE, unix.ENFILE, unix.ENOSPC, unix.EDQUOT, unix.ENOMEM, unix.ENOBUFS},
		func(one error) bool { return errors.Is(err, one) })
}

// OfDisk reports whether an operation failed because a disk is full, or a quota of it used up.
func OfDisk(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// again is the pause before a connection is accepted again.
const again = 50 * time.Millisecond

// Accepting returns a listener whose Accept does not fail because of a shortage, but waits until that is over: servers
// end for good when Accept fails.
func Accepting(l net.Listener) net.Listener { return listener{l} }

type listener struct{ net.Listener }

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err == nil || !Is(err) {
			return c, err
		}
		time.Sleep(again)
	}
}
