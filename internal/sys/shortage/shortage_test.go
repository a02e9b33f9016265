package shortage_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys/shortage"
)

// short is a listener that first fails as Go's do when the kernel watches no more files for this user.
type short struct {
	net.Listener
	failed bool
}

func (s *short) Accept() (net.Conn, error) {
	if s.failed {
		return s.Listener.Accept()
	}
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	s.failed = true
	c.Close()
	return nil, &net.OpError{Op: "accept", Net: "unix", Err: os.NewSyscallError("epoll_ctl", unix.ENOSPC)}
}

// TestServerOutlivesAShortage: a server answers when a shortage is over, and ends when its listener is closed.
func TestServerOutlivesAShortage(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- http.Serve(shortage.Accepting(&short{Listener: l}), http.NotFoundHandler()) }()
	get := func() (err error) {
		response, err := http.Get("http://" + l.Addr().String())
		if err == nil {
			response.Body.Close()
		}
		return err
	}
	if get() == nil {
		t.Error("there was no shortage")
	}
	answered := make(chan error, 1)
	go func() { answered <- get() }()
	select {
	case err = <-ended:
		t.Fatalf("the server has ended: %v", err)
	case err = <-answered:
	}
	if err != nil {
		t.Error(err)
	}
	l.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if shortage.Is(fmt.Errorf("dialing: %w", unix.ECONNREFUSED)) || shortage.Is(nil) {
		t.Error("a refused connection is no shortage")
	}
}
