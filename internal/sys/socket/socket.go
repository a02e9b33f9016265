// Package socket makes sockets that others watch for, and connects to theirs.
package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"podrun.io/podrun/internal/sys/shortage"
)

// Listener is a listener on a socket.
type Listener struct {
	net.Listener
	path string
	made fs.FileInfo
}

// mostConnections is how many a listener accepts at once: whoever can reach it must not use up podrun's files.
const mostConnections = 64

// Listen listens on a socket at path, which only root may connect to. It takes the place of whatever is there by a
// rename: whoever watches for its creation finds one that answers. It is made beside the directory of path, and not in
// it: containers may have that, and put a link where it is made.
func Listen(path string) (*Listener, error) {
	dir, err := os.MkdirTemp(filepath.Dir(filepath.Dir(path)), ".podrun-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	next := filepath.Join(dir, "s")
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
	if err != nil && os.RemoveAll(path) == nil { // a directory is in the way
		err = os.Rename(next, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &Listener{netutil.LimitListener(shortage.Accepting(l), mostConnections), path, made}, nil
}

// Server returns a gRPC server for those who may be anybody's plugin or monitor.
func Server() *grpc.Server {
	return grpc.NewServer(
		grpc.MaxRecvMsgSize(1<<16), grpc.MaxConcurrentStreams(mostConnections), grpc.ConnectionTimeout(10*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: time.Minute}))
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
	return client(path, func(ctx context.Context) (net.Conn, error) { return dialRoot(ctx, path) })
}

// Pinned is Client for one socket only: the one that is, or if that is zero the one that it first connects to, which is
// the one from then on. It has been set when a call has been answered.
func Pinned(path string, is *Identity) (*grpc.ClientConn, error) {
	var mu sync.Mutex
	return client(path, func(ctx context.Context) (net.Conn, error) {
		before, err := Identify(path)
		if err != nil {
			return nil, err
		}
		conn, err := dialRoot(ctx, path)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		after, err := Identify(path)
		if err == nil && after == before && *is == (Identity{}) {
			*is = after
		}
		if err != nil || after != before || after != *is {
			return nil, errors.Join(fmt.Errorf("%s: %w", path, ErrAnother), conn.Close())
		}
		return conn, nil
	})
}

func client(path string, dial func(context.Context) (net.Conn, error)) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///localhost", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"), grpc.WithIdleTimeout(0), // an end of the connection is the server's
		grpc.WithMaxHeaderListSize(1<<14),
		grpc.WithUnaryInterceptor(plainly(path)), grpc.WithStreamInterceptor(plainStream(path)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }))
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
