package netdev

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// settle is how long Watch waits for more changes after one.
const settle = 500 * time.Millisecond

// Watch calls changed once at the start and then after changes that the kernel reports to the netlink groups, until ctx
// ends: once for all changes within half a second. It watches the network namespace of the calling thread.
func Watch(ctx context.Context, protocol int, groups []uint, changed func()) error {
	socket, err := nl.Subscribe(protocol, groups...)
	if err != nil {
		return fmt.Errorf("watching the kernel's network: %w", err)
	}
	closed := context.AfterFunc(ctx, socket.Close)
	defer func() {
		if closed() {
			socket.Close()
		}
	}()
	events, failed := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		for {
			// ENOBUFS: more has changed than the socket holds.
			_, _, err := socket.Receive()
			if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) {
				failed <- err
				return
			}
			select {
			case events <- struct{}{}:
			default:
			}
		}
	}()
	for {
		changed()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return errors.Join(ctx.Err(), err)
		case <-events:
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(settle):
		}
		select {
		case <-events:
		default:
		}
	}
}
