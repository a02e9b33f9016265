package describe

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
)

// TestTailOfLongLine: a line of any length does not take as much memory.
func TestTailOfLongLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := &Printer{Dirs: layout.Dirs{Root: dir + "/root", Run: dir + "/run", Log: dir + "/log"}, Log: slog.New(slog.DiscardHandler)}
	inst := pod.Instance{ID: "id", Key: pod.Key{Namespace: "default", Name: "web"}, UID: "u1", Container: "app"}
	log := d.Dirs.ContainerLog(inst.Key, inst.UID, inst.Container, inst.Attempt)
	text := "2026-01-02T15:04:05Z stdout F begin" + strings.Repeat("x", 1<<20) + "end\n"
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := d.tail(t.Context(), inst); len(got) != lastBytes || !strings.HasSuffix(got, "xend\n") {
		t.Errorf("%d bytes: %.20q", len(got), got)
	}
}
