package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// restarting is a Node with a pod that runs again whenever its log was read.
type restarting struct {
	changing
	wanted []LogRequest
	enough func()
}

func (n *restarting) Log(_ context.Context, want LogRequest, out io.Writer) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wanted = append(n.wanted, want)
	if len(n.wanted) == 3 {
		n.enough()
	}
	n.run(len(n.wanted))
	if len(n.wanted) == 2 {
		return fmt.Errorf("it went: %w", ErrNotFound)
	}
	_, err := fmt.Fprintf(out, "2026-01-02T15:04:05Z run %d\n", len(n.wanted))
	return err
}

func (n *restarting) run(number int) {
	p := sickPod("")
	p.Status.ContainerStatuses[0].ContainerID = fmt.Sprint("containerd://", number)
	n.now = []v1.Pod{p}
}

// TestFollowedLogs: the log of each instance is read by the ID of the instance, only of the first one the part that was
// asked for, and one that is gone is no error.
func TestFollowedLogs(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	node := &restarting{enough: cancel}
	node.run(0)
	h := NewHandler(Options{
		Node: node, Metrics: http.NotFoundHandler(), Resource: http.NotFoundHandler(), Containers: http.NotFoundHandler(),
		Probes: http.NotFoundHandler(), Log: slog.New(slog.DiscardHandler),
	})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/pod/default/web-n/log?follow=true&tailLines=3&sinceSeconds=5&stream=Stderr", nil))
	var got []string
	for _, r := range node.wanted {
		got = append(got, fmt.Sprint(r.Container, r.Run, r.Stream, r.Follow, r.Timestamps, r.Tail != nil, !r.Since.IsZero(), r.ErrOut != nil, r.CaughtUp != nil))
	}
	if want := []string{
		"ccontainerd://0Stderrtrue true true true true true", "ccontainerd://1Stderrtrue true false false true true",
		"ccontainerd://2Stderrtrue true false false true true",
	}; !slices.Equal(got, want) {
		t.Errorf("wanted %q", got)
	}
	const text = "2026-01-02T15:04:05Z c stdout run 1\n2026-01-02T15:04:05Z c - started again\n2026-01-02T15:04:05Z c - started again\n"
	if body := w.Body.String(); w.Code != http.StatusOK || !strings.HasPrefix(text+"2026-01-02T15:04:05Z c stdout run 3\n", body) || body == "" {
		t.Errorf("%d %q", w.Code, body)
	}
}
