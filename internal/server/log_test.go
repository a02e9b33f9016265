package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"podrun.io/podrun/internal/test"
)

// silent is a Node whose containers have written a line, and write no more.
type silent struct {
	fakeNode
	followed chan error // gets why the log was followed no more
}

func (n silent) Log(ctx context.Context, _ LogRequest, out io.Writer) error {
	_, err := io.WriteString(out, "0123456789")
	if err == nil {
		<-ctx.Done()
		err = ctx.Err()
	}
	n.followed <- err
	return err
}

// TestLimitOfAFollowedLog: the response ends with the last of the bytes that are wanted, not with the next line.
func TestLimitOfAFollowedLog(t *testing.T) {
	t.Parallel()
	for limit, want := range map[string]string{"9": "012345678", "10": "0123456789"} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		n := silent{followed: make(chan error, 1)}
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(ctx, "GET", "/containerLogs/ns/web/c?follow=true&limitBytes="+limit, nil)
		handlerOf(n).ServeHTTP(w, r)
		err := <-n.followed
		if w.Code != http.StatusOK || w.Body.String() != want || !errors.Is(err, errEnough) {
			t.Errorf("limit %s: %d %q, %v", limit, w.Code, w.Body, err)
		}
	}
}

// handlerOf returns the handler of a node that has nothing but its containers' logs.
func handlerOf(n Node) http.Handler {
	return NewHandler(Options{
		Node: n, Metrics: http.NotFoundHandler(), Resource: http.NotFoundHandler(), Containers: http.NotFoundHandler(),
		Probes: http.NotFoundHandler(), Log: slog.New(slog.DiscardHandler),
	})
}

// TestFollowerThatIsGone: net/http itself sees only that a client is gone which has sent no more than its request.
func TestFollowerThatIsGone(t *testing.T) {
	t.Parallel()
	n := silent{followed: make(chan error, 1)}
	s, err := Listen(filepath.Join(t.TempDir(), "s"), ListenOptions{Address: "127.0.0.1:0"}, slog.New(slog.DiscardHandler))
	test.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, handlerOf(n)) }()
	defer func() { cancel(); <-done }()
	for _, rest := range []string{"", "G"} {
		c, err := net.Dial("tcp", s.Address().String())
		test.Must(t, err)
		_, err = io.WriteString(c, "GET /containerLogs/ns/web/c?follow=true HTTP/1.1\r\nHost: localhost\r\n\r\n")
		test.Must(t, err)
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		test.Must(t, err)
		_, err = io.ReadFull(answer.Body, make([]byte, 10))
		test.Must(t, err)
		_, err = io.WriteString(c, rest)
		test.Must(t, err)
		time.Sleep(100 * time.Millisecond) // it is read
		test.Must(t, c.Close())
		select {
		case <-n.followed:
		case <-time.After(20 * time.Second):
			t.Fatalf("the log is followed for a client that has sent %q more and is gone", rest)
		}
	}
}

// TestBody: a request with a body is refused, and its connection is closed.
func TestBody(t *testing.T) {
	t.Parallel()
	for _, body := range []io.Reader{strings.NewReader("x"), io.MultiReader(strings.NewReader("x"))} { // the second one without a length
		w := httptest.NewRecorder()
		handlerOf(fakeNode{}).ServeHTTP(w, httptest.NewRequest("GET", "/healthz", body))
		if w.Code != http.StatusBadRequest || w.Header().Get("Connection") != "close" {
			t.Errorf("%d %q, Connection: %q", w.Code, w.Body, w.Header().Get("Connection"))
		}
	}
}
