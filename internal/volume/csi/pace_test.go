package csi_test

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"podrun.io/podrun/internal/test"
	"podrun.io/podrun/internal/volume/csi"
)

// lines is a log that may be read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

// TestPaceOfConnections: a driver that ends one connection after another is back at once the first time, and then once
// in a second: neither the log nor the pods that wait hear of it more often.
func TestPaceOfConnections(t *testing.T) {
	m := newMachine(t)
	m.serve()
	before := filepath.Join(m.kubelet, "plugins", "p", "csi.sock") // the driver's socket, with what ends connections before it
	test.Must(t, os.MkdirAll(filepath.Dir(before), 0o700))
	listener, err := net.Listen("unix", before)
	test.Must(t, err)
	defer listener.Close()
	var cuts atomic.Bool
	current := make(chan net.Conn, 1000)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("unix", m.driver.Path("csi.sock"))
			if err != nil {
				_ = conn.Close()
				continue
			}
			go func() { _, _ = io.Copy(to, conn); _ = to.Close() }()
			go func() { _, _ = io.Copy(conn, to); _ = conn.Close() }()
			current <- conn
			if cuts.Load() {
				time.AfterFunc(20*time.Millisecond, func() { _ = conn.Close() })
			}
		}
	}()
	log, changes := &lines{}, atomic.Int64{}
	drivers := csi.New(csi.Options{Dirs: m.dirs, Dir: m.kubelet, Log: slog.New(slog.NewTextHandler(log, nil))})
	test.Eventually(t, "the driver to register", func() bool {
		return drivers.Register(t.Context(), driverName, before, []string{"1.0.0"}) == nil
	})
	defer drivers.Deregister(driverName, before)
	drivers.OnChange(func() { changes.Add(1) })
	cuts.Store(true)
	for len(current) > 0 {
		_ = (<-current).Close()
	}
	begun := time.Now()
	test.Eventually(t, "the driver to be back", func() bool { return changes.Load() > 0 })
	time.Sleep(3 * time.Second)
	seconds := int(time.Since(begun)/time.Second) + 1
	if n := int(changes.Load()); n > seconds {
		t.Errorf("pods are woken %d times in %d seconds", n, seconds)
	}
	if n := log.count("connection to a CSI driver changed"); n > 2*seconds+1 {
		t.Errorf("%d lines in %d seconds", n, seconds)
	}
}
