package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// elsewhere is a listener whose connections from 127.0.0.N come from 192.0.2.N.
type elsewhere struct{ net.Listener }

type from struct {
	net.Conn
	remote net.Addr
}

func (c from) RemoteAddr() net.Addr { return c.remote }

func (l elsewhere) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	at := *c.RemoteAddr().(*net.TCPAddr)
	if ip := at.IP.To4(); ip[3] != 1 {
		at.IP = net.IPv4(192, 0, 2, ip[3])
	}
	return from{c, &at}, nil
}

// listening runs a server at a TCP address and returns the address.
func listening(t *testing.T, n Node) string {
	t.Helper()
	s, err := Listen(filepath.Join(t.TempDir(), "s"), ListenOptions{Address: "127.0.0.1:0"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	address := s.Address().String()
	s.tcp = elsewhere{s.tcp}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	h := NewHandler(Options{Node: n, Metrics: http.NotFoundHandler(), Resource: http.NotFoundHandler(), Containers: http.NotFoundHandler(), Probes: http.NotFoundHandler(), Log: slog.New(slog.DiscardHandler)})
	go func() { done <- s.Run(ctx, h) }()
	t.Cleanup(func() { cancel(); <-done })
	return address
}

// dialFrom connects from an address of the loopback.
func dialFrom(address, own string) (net.Conn, error) {
	d := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(own)}}
	return d.Dial("tcp", address)
}

// healthFrom asks for /healthz within a time, over a connection of its own.
func healthFrom(address, own string, within time.Duration) error {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(own)}}
	client := &http.Client{Timeout: within, Transport: &http.Transport{DisableKeepAlives: true, DialContext: d.DialContext}}
	answer, err := client.Get("http://" + address + "/healthz")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); string(text) != "ok" || err != nil {
		return fmt.Errorf("%q, %w", text, err)
	}
	return nil
}

// TestSilentConnections: hundreds of clients that connect and send nothing, again and again, keep away neither the
// clients of other addresses nor, for long, those of their own; and a connection that has been in use stays.
func TestSilentConnections(t *testing.T) {
	address := listening(t, fakeNode{})
	kept, err := dialFrom(address, "127.0.0.3")
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	answers := bufio.NewReader(kept)
	ask := func() {
		t.Helper()
		_ = kept.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprintf(kept, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("a connection in use was closed: %v", err)
		}
		defer answer.Body.Close()
		_, _ = io.Copy(io.Discard, answer.Body)
	}
	ask()
	var silent sync.WaitGroup
	stop := make(chan struct{})
	defer silent.Wait()
	defer close(stop)
	for range 600 {
		silent.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, err := dialFrom(address, "127.0.0.1")
				if err != nil {
					continue
				}
				_ = c.SetDeadline(time.Now().Add(10 * time.Second))
				end := context.AfterFunc(t.Context(), func() { c.Close() })
				_, _ = c.Read(make([]byte, 1)) // until it is closed
				end()
				c.Close()
			}
		})
	}
	time.Sleep(time.Second)
	for range 5 {
		began := time.Now()
		// Usually a quarter of a second, with the race detector half a second.
		if err := healthFrom(address, "127.0.0.2", 3*time.Second); err != nil {
			t.Errorf("another client: %v", err)
		}
		t.Logf("another client: %s", time.Since(began))
	}
	for range 3 {
		began := time.Now()
		var err error
		for err = healthFrom(address, "127.0.0.1", 2*time.Second); err != nil && time.Since(began) < 8*time.Second; {
			err = healthFrom(address, "127.0.0.1", 2*time.Second)
		}
		if err != nil {
			t.Errorf("the same client: %v", err)
		}
		t.Logf("the same client: %s", time.Since(began))
	}
	ask()
}

// flowing is a Node with a log longer than any client reads.
type flowing struct{ fakeNode }

func (flowing) Log(ctx context.Context, _ LogRequest, out io.Writer) error {
	text := []byte(strings.Repeat("text\n", 1<<16))
	for ctx.Err() == nil {
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// TestSlowLogReaders: clients that do not read the logs that they have asked for do not keep others away, whether the
// logs are followed or not.
func TestSlowLogReaders(t *testing.T) {
	address := listening(t, flowing{})
	statuses := map[int]int{}
	for i := range connections {
		c, err := dialFrom(address, fmt.Sprintf("127.0.0.%d", 10+i%4))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(c, "GET /containerLogs/a/b/c HTTP/1.1\r\nHost: localhost\r\n\r\n")
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { answer.Body.Close() }) // later than the connection, else it would read all
		statuses[answer.StatusCode]++
	}
	if statuses[http.StatusOK] != streams || statuses[http.StatusServiceUnavailable] != connections-streams {
		t.Errorf("got %v", statuses)
	}
	if err := healthFrom(address, "127.0.0.2", 3*time.Second); err != nil {
		t.Errorf("another client: %v", err)
	}
}

// TestYielding: which connection is closed for another one.
func TestYielding(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	long := time.Now().Add(-time.Hour)
	for _, c := range []struct {
		name   string
		have   string // a client and its usage: unproven, idle or busy; the oldest first
		closed int
	}{
		{"few", "a- b+ c!", -1},
		{"too many of all: what has shown nothing", "a+ b! c- d-", 2},
		{"of the client that has most of these", "a- b- b- c+", 1},
		{"too many of one: what it used least", "a! a+ a+ b-", 1},
		{"all are in use: the oldest", "a! b! c! d!", 0},
		{"both: of the one with too many", "b- a! a! a!", 1},
	} {
		l := newYielding(listener, 3, 2)
		var all []*connection
		for i, text := range strings.Fields(c.have) {
			one, other := net.Pipe()
			defer other.Close()
			x := &connection{
				Conn: one, of: l, usage: usage(strings.IndexByte("-+!", text[1])), since: long.Add(time.Duration(i) * time.Second),
				client: clientAt(&net.TCPAddr{IP: net.IPv4(192, 0, 2, text[0])}),
			}
			all = append(all, x)
			l.connections[x] = true
		}
		if l.tooMany() {
			t.Errorf("%s: it waits", c.name)
		}
		for i, x := range all {
			if l.connections[x] != (i != c.closed) {
				t.Errorf("%s: connection %d: %v", c.name, i, l.connections[x])
			}
		}
	}
}

func TestClientAt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1:1", "192.0.2.1:2", true}, {"192.0.2.1:1", "192.0.2.2:1", false}, {"192.0.2.1:1", "[::ffff:192.0.2.1]:1", true},
		{"[2001:db8::1]:1", "[2001:db8::2:1]:1", true}, {"[2001:db8::1]:1", "[2001:db8:0:1::1]:1", false},
		{"[fe80::1%lo]:1", "[fe80::2]:1", true},
		{"127.0.0.1:1", "127.1.2.3:1", true}, {"127.0.0.1:1", "[::1]:1", true}, {"[::1]:1", "[::2]:1", false},
	} {
		var of [2]net.Addr
		for i, text := range []string{c.a, c.b} {
			of[i] = net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text))
		}
		if (clientAt(of[0]) == clientAt(of[1])) != c.same {
			t.Errorf("%s and %s: %v, %v", c.a, c.b, clientAt(of[0]), clientAt(of[1]))
		}
	}
}
