// Package socket makes sockets that others watch for, and connects to theirs.
package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Listener is a listener on a socket.
type Listener struct {
	net.Listener
	path string
	made fs.FileInfo
}

// Listen listens on a socket at path, which only root may connect to. It takes the place of a former one by a
// rename: whoever watches for its creation finds one that answers.
func Listen(path string) (*Listener, error) {
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: next, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(next, 0o600)
	made, unseen := os.Lstat(next)
	if err = errors.Join(err, unseen); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &Listener{l, path, made}, nil
}

// Remove closes the listener, and removes its socket unless another one has taken its place.
func (l *Listener) Remove() error {
	err := l.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	if now, gone := os.Lstat(l.path); gone != nil || !os.SameFile(now, l.made) {
		return err
	}
	return errors.Join(err, os.Remove(l.path))
}

// IsFree reports whether nobody listens at path. That is not so if it cannot be found out.
func IsFree(path string) bool {
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// Client returns a gRPC connection to the server at path, which is taken as it is: gRPC's own names for sockets
// are URLs, in which some characters mean something else. It connects when it is first used, and only to a process
// of root's: whoever owns a directory above may have put another socket there since its owner was checked.
func Client(path string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///localhost", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"), grpc.WithIdleTimeout(0), // an end of the connection is the server's
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return dialRoot(ctx, path)
		}))
}

// dialRoot connects to a socket on which root listens.
func dialRoot(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := verifyPeer(conn); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), conn.Close())
	}
	return conn, nil
}

// verifyPeer returns an error for a connection to a process that was not root when it began to listen.
func verifyPeer(conn net.Conn) error {
	c, is := conn.(syscall.Conn)
	if !is {
		return fmt.Errorf("not known who listens: %T", conn)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var unknown error
	err = raw.Control(func(fd uintptr) {
		peer, unknown = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, unknown); err != nil {
		return fmt.Errorf("not known who listens: %w", err)
	}
	if peer.Uid != 0 {
		return fmt.Errorf("the user %d listens there, not root", peer.Uid)
	}
	return nil
}
