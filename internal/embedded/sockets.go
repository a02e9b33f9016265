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
