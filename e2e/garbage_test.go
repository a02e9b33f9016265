package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A log that grows over many files is read as one, while it grows and after, whatever becomes of podrun.
func TestLogRotates(t *testing.T) {
	n := newNode(t)
	rotating := []string{"--container-log-max-size=32Ki", "--container-log-max-files=60"}
	n.write("a.yaml", manifest("a", "Never", "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); [ $((i%500)) = 0 ] && sleep 0.03; done"))
	n.serve(rotating...)
	n.await("the log", func() error {
		if r := n.run("logs", "a"); !strings.HasPrefix(r.stdout, "line 0\n") {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	followed := make(chan result, 1)
	go func() { followed <- outcome(t, n.command(ctx, "logs", "-f", "a"), "") }()
	time.Sleep(300 * time.Millisecond) // anywhere in between
	n.end(syscall.SIGKILL)
	n.serve(rotating...)
	r := <-followed
	if lines, err := whole(r.stdout); err != nil || lines != 20000 {
		t.Errorf("logs -f: %d lines, %v; exit %d: %s", lines, err, r.code, r.stderr)
	}
	if lines, err := whole(n.ok("logs", "a")); err != nil || lines != 20000 {
		t.Errorf("logs: %d lines, %v", lines, err)
	}
	if got := n.ok("logs", "--tail=5000", "a"); strings.Count(got, "\n") != 5000 || !strings.HasPrefix(got, "line 15000\n") {
		t.Errorf("logs --tail: %d lines from %.20q", strings.Count(got, "\n"), got)
	}
	n.await("old files to be compressed", func() error {
		files, err := filepath.Glob(n.path("log", "*", "c", "0.log*"))
		packed := slices.DeleteFunc(slices.Clone(files), func(f string) bool { return !strings.HasSuffix(f, ".gz") })
		if err == nil && (len(files) < 20 || len(packed) != len(files)-2) {
			err = fmt.Errorf("%v", files)
		}
		return err
	})
}
