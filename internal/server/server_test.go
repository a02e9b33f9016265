package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"podrun.io/podrun/internal/test"
)

// serve runs a server until stop is called.
func serve(t *testing.T, socket, address string) (s *Server, stop func()) {
	t.Helper()
	s, err := Listen(socket, ListenOptions{Address: address}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, handler(fakeNode{})) }()
	stop = func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	}
	return s, stop
}

func get(socket string) (string, error) {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	r, err := client.Get("http://podrun/healthz")
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return string(body), err
}

func TestSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "podrun.sock")
	// A killed podrun leaves a socket on which nothing listens.
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	_, stop := serve(t, socket, "")
	info, err := os.Stat(socket)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("got %v, %v, want mode 0600", info.Mode(), err)
	}
	if body, err := get(socket); err != nil || body != "ok" {
		t.Errorf("got %q, %v", body, err)
	}
	stop()
	if entries, _ := os.ReadDir(filepath.Dir(socket)); len(entries) > 0 {
		t.Errorf("left behind: %v", entries)
	}
}

// A directory may have a longer path than a socket may have.
func TestSocketInADeepDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 40))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	_, stop := serve(t, filepath.Join(dir, "podrun.sock"), "")
	t.Chdir(dir)
	if body, err := get("podrun.sock"); err != nil || body != "ok" {
		t.Errorf("got %q, %v", body, err)
	}
	stop()
}

func TestSomethingElseInTheSocketsPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "podrun.sock")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path, ListenOptions{}, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("took the place of a file")
	}
	if data, _ := os.ReadFile(path); string(data) != "precious" {
		t.Errorf("the file is now %q", data)
	}
}

func TestListen(t *testing.T) {
	for _, address := range []string{":10255", "0.0.0.0:0", "[::]:0", "192.0.2.1:80", "example.com:80", "127.0.0.1", "10255", "[fe80::1]:1"} {
		_, err := Listen(filepath.Join(t.TempDir(), "s"), ListenOptions{Address: address}, slog.New(slog.DiscardHandler))
		if !errors.Is(err, ErrAddress) {
			t.Errorf("%s: got %v", address, err)
		}
	}
	s, stop := serve(t, filepath.Join(t.TempDir(), "s"), "127.0.0.1:0")
	defer stop()
	r, err := http.Get("http://" + s.Address().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Errorf("got %s", r.Status)
	}
}

// TestListenLater: another program has the address at first. The socket is served all the same, and the address when
// it is free.
func TestListenLater(t *testing.T) {
	t.Parallel()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	test.Must(t, err)
	socket := filepath.Join(t.TempDir(), "s")
	s, stop := serve(t, socket, other.Addr().String())
	defer stop()
	if a := s.Address(); a != nil {
		t.Errorf("serves %s", a)
	}
	get := func(network, address string) error {
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}}}
		r, err := client.Get("http://localhost/metrics")
		if err != nil {
			return err
		}
		return r.Body.Close()
	}
	test.Must(t, get("unix", socket))
	test.Must(t, other.Close())
	test.Eventually(t, "the address is served", func() bool { return get("tcp", other.Addr().String()) == nil })
	if a := s.Address(); a == nil || a.String() != other.Addr().String() {
		t.Errorf("serves %v", a)
	}
}

// TestListenEnds: a server ends while it waits for its address.
func TestListenEnds(t *testing.T) {
	t.Parallel()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	test.Must(t, err)
	defer other.Close()
	dir := t.TempDir()
	_, stop := serve(t, filepath.Join(dir, "s"), other.Addr().String())
	stop()
	s, err := Listen(filepath.Join(dir, "s"), ListenOptions{Address: other.Addr().String()}, slog.New(slog.DiscardHandler))
	test.Must(t, err)
	s.Close()
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestHeaderLimit(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	_, stop := serve(t, socket, "")
	defer stop()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// Written in a goroutine: the server may respond and close the connection before it has read
	// everything.
	go fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: x\r\nA: %s\r\n\r\n", strings.Repeat("a", 1<<20))
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got %s", r.Status)
	}
}
