package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestServeStoppedWithTheMachine: when systemd stops serve because the machine shuts down, pods end
// before serve does; when only serve is stopped, they run on.
func TestServeStoppedWithTheMachine(t *testing.T) {
	for state, ends := range map[string]bool{"stopping": true, "running": false} {
		t.Run(state, func(t *testing.T) {
			dir := t.TempDir()
			script := "#!/bin/sh\necho " + state + "\n"
			if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			path, next := listener(t)
			t.Setenv("NOTIFY_SOCKET", path)
			s := newServing(t)
			s.o.Halt.Grace = 20 * time.Second
			s.write("web.yaml", webManifest)
			s.start()
			s.until("/pods", 200, `"web-n"`, `"running"`)
			s.stop()
			if err := <-s.done; err != nil {
				t.Errorf("Serve returned %v", err)
			}
			stops := 0
			for _, call := range s.runtime.Calls() {
				if strings.HasPrefix(call, "SignalContainer") {
					stops++
				}
			}
			if (stops > 0) != ends {
				t.Errorf("%d signals", stops)
			}
			for said := next(); said != "STOPPING=1"; said = next() {
			}
			if ends {
				if said := next(); said != "EXTEND_TIMEOUT_USEC=35000000" {
					t.Errorf("said %q", said)
				}
			}
		})
	}
}
