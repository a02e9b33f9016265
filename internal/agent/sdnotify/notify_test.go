package sdnotify

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func TestWatchdog(t *testing.T) {
	me := strconv.Itoa(os.Getpid())
	for _, tt := range []struct {
		micros, pid string
		want        time.Duration
	}{
		{"", "", 0},
		{"30000000", me, 30 * time.Second},
		{"30000000", "", 30 * time.Second},
		{"30000000", "1", 0},
		{"soon", "", 0},
	} {
		t.Setenv("WATCHDOG_USEC", tt.micros)
		t.Setenv("WATCHDOG_PID", tt.pid)
		if got := Watchdog(); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// TestStarting: what takes long before serve is ready is said to the service manager, with more time for it, until it
// is done.
func TestStarting(t *testing.T) {
	dir, err := os.MkdirTemp("", "sd") // short: a socket's path is
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := &net.UnixAddr{Net: "unixgram", Name: filepath.Join(dir, "notify")}
	manager, err := net.ListenUnixgram("unixgram", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", socket.Name)
	next := func() string {
		t.Helper()
		if err := manager.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 4096)
		n, err := manager.Read(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(text[:n])
	}
	n := Notifier{Log: slog.New(slog.DiscardHandler)}
	done := n.starting("Loading a.tar", 30*time.Millisecond)
	const want = "EXTEND_TIMEOUT_USEC=30000\nSTATUS=Loading a.tar"
	for range 3 {
		if got := next(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	done()
	n.Ready(1)
	got := next()
	for got == want { // sent before
		got = next()
	}
	if got != "READY=1\nSTATUS=Serving 1 pods" {
		t.Errorf("%q", got)
	}
}
