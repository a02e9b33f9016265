package agent

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"testing"

	"podrun.io/podrun/internal/layout"
	"podrun.io/podrun/internal/runtime"
)

func TestLocate(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Root: t.TempDir(), Run: t.TempDir()}
	for _, c := range []struct{ address, environment, want string }{
		{"/a.sock", "/b.sock", "/a.sock"},
		{"", "/b.sock", "/b.sock"},
		{Embedded, "/b.sock", Embedded},
	} {
		if got := Locate(ConnectOptions{Address: c.address, Environment: c.environment, Dirs: dirs}); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Root: t.TempDir(), Run: t.TempDir()}
	address := filepath.Join(dirs.Run, "absent.sock")
	_, err := Connect(context.Background(), ConnectOptions{Address: "unix://" + address, Dirs: dirs, Log: slog.New(slog.DiscardHandler)})
	var u *UnreachableError
	if !errors.As(err, &u) || u.Address != address || !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	_, err = Connect(context.Background(), ConnectOptions{Address: Embedded, Running: true, Dirs: dirs, Log: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, ErrNotRunning) {
		t.Errorf("got %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dirs.Run, "*")); len(left) > 0 || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("made %v", left)
	}
}
