package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
// logs are followed or not. The logs of many containers count as several.
func TestSlowLogReaders(t *testing.T) {
	p := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}}
	for i := range 2 * containersOfStream {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: fmt.Sprint("c", i)})
	}
	for path, want := range map[string]int{
		"/containerLogs/a/b/c": streams, "/pod/a/b/log?container=c0": streams, "/pod/a/b/log": streams / 2,
	} {
		address := listening(t, flowing{fakeNode{pods: []v1.Pod{p}}})
		statuses, began := map[int]int{}, time.Now()
		for i := range connections {
			c, err := dialFrom(address, fmt.Sprintf("127.0.0.%d", 10+i%4))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(20 * time.Second))
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
			answer, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { answer.Body.Close() }) // later than the connection, else it would read all
			statuses[answer.StatusCode]++
		}
		// After writeTime the server ends what is not read, and then others have its place.
		more := statuses[http.StatusOK] > want && time.Since(began) > writeTime
		if statuses[http.StatusOK] != want && !more || statuses[http.StatusServiceUnavailable] != connections-statuses[http.StatusOK] {
			t.Errorf("%s: got %v, want %d", path, statuses, want)
		}
		if err := healthFrom(address, "127.0.0.2", 3*time.Second); err != nil {
			t.Errorf("%s: another client: %v", path, err)
		}
	}
}
