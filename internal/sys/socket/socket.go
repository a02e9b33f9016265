// Package socket makes sockets that others watch for.
package socket

import (
	"errors"
	"io/fs"
	"net"
	"os"
)

// Listen listens on a socket at path, which only root may connect to. It takes the place of a former one by a
// rename: whoever watches for its creation finds one that answers. It is not removed when the listener is
// closed.
func Listen(path string) (net.Listener, error) {
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: next, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(next, 0o600), os.Rename(next, path)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
