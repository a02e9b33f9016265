package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
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
