package api

import (
	"context"
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

	"golang.org/x/net/netutil"
)

// ErrAddress says that an address is not one to listen on.
var ErrAddress = errors.New("must be HOST:PORT with a loopback host, such as 127.0.0.1:10255; " +
	"other machines may not be answered, because answers are not encrypted and readers not known")

const (
	// connections bounds how many there are at once on each address, so that clients cannot use up the
	// files that podrun needs for its pods.
	connections = 64
	headerBytes = 16 << 10
	// farewell is how long requests may take to end when the server does.
	farewell = 2 * time.Second
)

// Server listens where it was told; Run answers.
type Server struct {
	socket string
	unix   net.Listener
	tcp    net.Listener // nil: none
	log    *slog.Logger
}

// Listen takes the socket, with mode 0600, in place of one that a killed podrun left, and the address if
// there is one. The caller sees to it that no other podrun uses the socket.
func Listen(socket, address string, log *slog.Logger) (*Server, error) {
	s := &Server{socket: socket, log: log}
	var err error
	if address != "" {
		if s.tcp, err = listenLocal(address); err != nil {
			return nil, fmt.Errorf("listening on %q: %w", address, err)
		}
	}
	if s.unix, err = listenUnix(socket); err != nil {
		s.Close()
		return nil, fmt.Errorf("listening on %s: %w", socket, err)
	}
	return s, nil
}

// listenLocal listens where only this machine can reach it.
func listenLocal(address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil || !local(host) {
		return nil, ErrAddress
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	// "localhost" is what the machine's hosts file says it is.
	if a, ok := l.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
		l.Close()
		return nil, ErrAddress
	}
	return l, nil
}

func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// listenUnix makes the socket aside, where nobody else can enter, and puts it into its place by a rename:
// there is no moment at which it is open to others. Its directory is named through a descriptor, because
// a socket's path may not be long.
func listenUnix(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil, errors.New("there is something else in its place")
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
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/s"})
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

// Address is where TCP is listened on; nil: nowhere.
func (s *Server) Address() net.Addr {
	if s.tcp == nil {
		return nil
	}
	return s.tcp.Addr()
}

// Close gives up the addresses of a server that does not run.
func (s *Server) Close() {
	if s.tcp != nil {
		s.tcp.Close()
	}
	if s.unix != nil {
		s.unix.Close()
		_ = os.Remove(s.socket) // else the next one replaces it
	}
}

// Run answers until ctx ends, and gives up the addresses.
func (s *Server) Run(ctx context.Context, h http.Handler) error {
	defer s.Close()
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	server := func(h http.Handler) *http.Server {
		return &http.Server{
			Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
			IdleTimeout: time.Minute, MaxHeaderBytes: headerBytes, BaseContext: func(net.Listener) context.Context { return base },
			ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		}
	}
	failed := make(chan error, 2)
	var running sync.WaitGroup
	defer running.Wait()
	var servers []*http.Server
	serve := func(l net.Listener, h http.Handler) {
		srv := server(h)
		servers = append(servers, srv)
		running.Go(func() { failed <- srv.Serve(netutil.LimitListener(l, connections)) })
	}
	serve(s.unix, h)
	if s.tcp != nil {
		serve(s.tcp, forThisHost(h))
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

// forThisHost refuses requests for other names than this machine's own. A web page that made its name
// point here could otherwise read the answers in the browser of somebody who is on this machine.
func forThisHost(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = strings.Trim(r.Host, "[]")
		}
		if !local(host) {
			http.Error(w, "this is not "+strconv.Quote(host)+"; ask for localhost", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}
