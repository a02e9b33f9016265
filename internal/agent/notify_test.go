package agent

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// listener returns a socket and a function that returns the next message of the service.
func listener(t *testing.T) (path string, next func() string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sd") // short: a socket's path is
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return path, func() string {
		t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4096)
		n, err := conn.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
}

func TestServeTellsTheServiceManager(t *testing.T) {
	s := newServing(t)
	path, next := listener(t)
	t.Setenv("NOTIFY_SOCKET", path)
	s.o.Watchdog = 60 * time.Millisecond
	s.write("web.yaml", webManifest)
	s.start()
	ready, alive := false, 0
	for !ready || alive < 3 {
		switch said := next(); {
		case strings.HasPrefix(said, "READY=1\nSTATUS=Serving 1 pods"):
			ready = true
		case said == "WATCHDOG=1":
			alive++
		default:
			t.Fatalf("said %q", said)
		}
	}
	s.until("/readyz", 200)
	s.stop()
	for said := next(); said != "STOPPING=1"; said = next() {
		if said != "WATCHDOG=1" {
			t.Errorf("said %q", said)
		}
	}
	if err := <-s.done; err != nil {
		t.Errorf("Serve returned %v", err)
	}
}

// TestServeWithoutTheServiceManager: a missing service manager is logged, and has no other effect.
func TestServeWithoutTheServiceManager(t *testing.T) {
	s := newServing(t)
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nobody"))
	s.o.Watchdog = time.Millisecond
	s.start()
	s.until("/readyz", 200)
	s.stop()
	if err := <-s.done; err != nil {
		t.Errorf("Serve returned %v", err)
	}
}
