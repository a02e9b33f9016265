package netdev

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/test"
)

// TestWatchOutlivesAShortage: without descriptors for its sockets it watches as soon as there are some, and says once
// more that something may have changed.
func TestWatchOutlivesAShortage(t *testing.T) {
	var before unix.Rlimit
	test.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	restore := func() { test.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before)) }
	t.Cleanup(restore)
	test.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: before.Max}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var changes atomic.Int32
	ended := make(chan error, 1)
	go func() {
		ended <- Watch(ctx, Watched{Protocol: unix.NETLINK_ROUTE, Groups: []int{unix.RTNLGRP_LINK}}, func() { changes.Add(1) })
	}()
	select {
	case err := <-ended:
		t.Fatalf("it ended: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if n := changes.Load(); n != 0 {
		t.Errorf("it watches without descriptors: %d", n)
	}
	restore()
	test.Eventually(t, "it watches", func() bool { return changes.Load() > 0 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestWatchRefused: who may not listen is told so.
func TestWatchRefused(t *testing.T) {
	const none = 31 // no protocol has it
	err := Watch(t.Context(), Watched{Protocol: none}, func() { t.Error("called") })
	if !errors.Is(err, unix.EPROTONOSUPPORT) {
		t.Error(err)
	}
}
