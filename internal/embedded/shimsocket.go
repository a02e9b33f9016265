package embedded

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/layout"
)

// shimListener is the descriptor at which a shim that serves has its socket.
const shimListener = 3

// ownSocket returns what removes the socket that this process, if it is a shim that serves, serves at. A shim looks
// for it under its container's name, but that of a group of containers is under the group's, and stayed
// for ever: one for each time that a pod was started.
func ownSocket() (remove func()) {
	at, err := unix.Getsockname(shimListener)
	if err != nil {
		return func() {} // it starts or cleans up after another
	}
	address, ok := at.(*unix.SockaddrUnix)
	if !ok || !filepath.IsAbs(address.Name) {
		return func() {}
	}
	var own unix.Stat_t
	if unix.Lstat(address.Name, &own) != nil {
		return func() {}
	}
	return func() {
		// Another shim of the group may have begun meanwhile; the number alone might be given again.
		var now unix.Stat_t
		if unix.Lstat(address.Name, &now) == nil && now.Ino == own.Ino && now.Ctim == own.Ctim {
			_ = os.Remove(address.Name)
		}
	}
}

// sweepSockets removes the sockets of shims that have ended and could not do so. Only while no shim can begin.
func sweepSockets(ctx context.Context, d layout.Dirs) error {
	entries, err := os.ReadDir(shimSockets(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(shimSockets(d), e.Name())
		c, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err == nil {
			_ = c.Close()
			continue
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
