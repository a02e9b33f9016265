package portforward

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/pod"
)

// TestLost: the removal of the pod ends the command, with words for users.
func TestLost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dirs := layout.Dirs{Root: dir + "/root", Run: dir + "/run", Log: dir + "/log"}
	p := Pod{Dirs: dirs, Log: slog.New(slog.DiscardHandler), Key: pod.Key{Namespace: "default", Name: "web-n"}}
	path := dirs.StatusFiles().Pod(p.Key)
	if err := os.MkdirAll(dirs.StatusFiles().Dir(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(`{"metadata": {"name": "web-n", "namespace": "default"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	reader := &query.Reader{Dirs: dirs, Owners: owner.Reader{Dirs: dirs}, Log: p.Log}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Lost(ctx, reader); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	lost := make(chan error)
	go func() { lost <- p.Lost(t.Context(), reader) }()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := <-lost; err == nil || err.Error() != `lost connection to pod: pod "web-n" was removed` {
		t.Error(err)
	}
	if _, err := p.Dial(t.Context(), 80); err == nil || strings.Contains(err.Error(), dir) {
		t.Error(err)
	}
}
