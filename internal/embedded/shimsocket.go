package embedded

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/checkpoint/layout"
)

// shimListener is the file descriptor of a serving shim's socket.
const shimListener = 3

// ownSocket returns a function that removes the socket that this process serves on, if it is a
// serving shim. A shim itself removes the socket named after its container, but the socket of a
// group of containers is named after the group, so it would remain for ever: one for each start of
// a pod.
func ownSocket() (remove func()) {
	at, err := unix.Getsockname(shimListener)
	if err != nil {
		return func() {} // this shim process does not serve: it starts another shim or cleans up after one
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
		// Another shim of the group may have created its socket meanwhile. The inode number alone
		// does not identify a file, because it may be reused.
		var now unix.Stat_t
		if unix.Lstat(address.Name, &now) == nil && now.Ino == own.Ino && now.Ctim == own.Ctim {
			_ = os.Remove(address.Name)
		}
	}
}

// sweepSockets removes the sockets of shims that ended without removing them. It must be called
// only while no shim can start.
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
