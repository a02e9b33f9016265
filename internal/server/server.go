package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"podrun.io/podrun/internal/server/yielding"
)

const (
	// connections limits the concurrent connections of the socket, and those of the TCP address, so
	// that clients cannot exhaust the file descriptors that podrun needs for its pods.
	connections = 64
	// connectionsEach limits those of one client of the TCP address.
	connectionsEach = connections * 3 / 4
	headerBytes     = 16 << 10
	// writeTime is how long a client may take to read a response or, if the response does not end,
	// its next part.
	writeTime = 30 * time.Second
	// headerTime is how long a client may take to send the header of a request, the first one
	// included; before that it may take as long again for TLS.
	headerTime = 2 * time.Second
	// farewell is how long running requests may continue when the server stops.
	farewell = 2 * time.Second
)

// Server is an HTTP server that listens on a Unix socket and optionally on a TCP address. Run
// serves requests.
type Server struct {
	socket string
	unix   net.Listener
	tcp    net.Listener // nil: none
	tls    *tls.Config  // for tcp; nil: none
	where  ListenOptions
	log    *slog.Logger
}

// Listen opens the socket with mode 0600, replacing one that a killed podrun left, and the TCP
// address if there is one. The caller must make sure that no other podrun process uses the socket.
func Listen(socket string, where ListenOptions, log *slog.Logger) (*Server, error) {
	s := &Server{socket: socket, where: where, log: log}
	var err error
	if where != (ListenOptions{History: where.History}) {
		if s.tcp, s.tls, err = where.listen(log); err != nil {
			return nil, fmt.Errorf("--listen %q: %w", where.Address, err)
		}
	}
	if s.unix, err = listenUnix(socket); err != nil {
		s.Close()
		return nil, fmt.Errorf("listening on %s: %w", socket, err)
	}
	return s, nil
}

func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// listenUnix creates the socket in a private directory and renames it to path, so that the socket
// is never accessible to others, not even for a moment. The directory is named through a file
// descriptor, because the path of a socket is limited in length.
func listenUnix(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil, errors.New("the path exists and is not a socket")
	}
	aside, err := os.MkdirTemp(filepath.Dir(path), ".socket-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(aside)
	dir, err := os.Open(aside)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{
		Net: "unix", Name: "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/s",
	})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	made := filepath.Join(aside, "s")
	if err := errors.Join(os.Chmod(made, 0o600), os.Rename(made, path)); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Address returns the TCP address that the server listens on; nil if there is none.
func (s *Server) Address() net.Addr {
	if s.tcp == nil {
		return nil
	}
	return s.tcp.Addr()
}

// Close closes the listeners of a server that is not running.
func (s *Server) Close() {
	if s.tcp != nil {
		s.tcp.Close()
	}
	if s.unix != nil {
		s.unix.Close()
		_ = os.Remove(s.socket) // else the next podrun replaces it
	}
}

// Run serves requests until ctx ends or a listener fails, and closes the listeners.
func (s *Server) Run(ctx context.Context, h http.Handler) error {
	defer s.Close()
	base, cut := context.WithCancel(withShutdown(context.WithoutCancel(ctx), ctx))
	defer cut()
	server := func(h http.Handler) *http.Server {
		return &http.Server{
			Handler: h, ReadHeaderTimeout: headerTime, ReadTimeout: 10 * time.Second, WriteTimeout: writeTime,
			IdleTimeout: time.Minute, MaxHeaderBytes: headerBytes,
			BaseContext: func(net.Listener) context.Context { return base }, ConnContext: yielding.WithConnection,
			ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		}
	}
	failed := make(chan error, 2)
	var running sync.WaitGroup
	defer running.Wait()
	var servers []*http.Server
	serve := func(l net.Listener, secure *tls.Config, h http.Handler) {
		srv := server(h)
		servers = append(servers, srv)
		if secure != nil {
			l = tls.NewListener(l, secure)
		}
		running.Go(func() { failed <- srv.Serve(l) })
	}
	// The socket is for root only: its clients wait for each other.
	serve(yielding.Waiting(s.unix, connections), nil, h)
	if s.tcp != nil {
		serve(yielding.New(s.tcp, connections, connectionsEach), s.tls, s.where.guard(yielding.InUse(h)))
	}
	var err error
	select {
	case <-ctx.Done():
		err = ctx.Err()
	case err = <-failed:
		err = fmt.Errorf("serving HTTP: %w", err)
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	for _, srv := range servers {
		if srv.Shutdown(last) != nil {
			srv.Close()
		}
	}
	return err
}

// onlyLocalHost refuses requests for host names other than those of this machine. Otherwise a web
// page whose host name resolves to this machine could read the responses through the browser of a
// user on this machine (DNS rebinding).
func onlyLocalHost(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := hostName(r)
		if !local(host) {
			w.Header().Set("Connection", "close")
			http.Error(w, "this is not "+strconv.Quote(host)+"; ask for localhost", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// hostName returns the host that a request names, without a port.
func hostName(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		return strings.Trim(r.Host, "[]")
	}
	return host
}
