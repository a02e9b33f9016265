package report

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestInterruptedReport: an interrupt that has come already does not keep the report of a file from being written, nor is
// anything said of a report that nobody asked for.
func TestInterruptedReport(t *testing.T) {
	t.Parallel()
	interrupted := make(chan struct{})
	close(interrupted)
	for range 20 {
		path := filepath.Join(t.TempDir(), "r.xml")
		for _, r := range []*File{{}, {Path: path}} {
			if err := r.ResultsUntil(Run{}, time.Minute, interrupted); err != nil {
				t.Fatalf("%q: %v", r.Path, err)
			}
		}
		if _, err := os.Stat(path); err != nil {
			t.Fatal(err)
		}
	}
}
