package connection

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"testing"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/embedded"
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
		if got := Locate(Options{Address: c.address, Environment: c.environment, Dirs: dirs}); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Root: t.TempDir(), Run: t.TempDir()}
	address := filepath.Join(dirs.Run, "absent.sock")
	_, err := Open(context.Background(), Options{Address: "unix://" + address, Dirs: dirs, Log: slog.New(slog.DiscardHandler)})
	var u *UnreachableError
	if !errors.As(err, &u) || u.Address != address || !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	_, err = Open(context.Background(), Options{Address: Embedded, Running: true, Dirs: dirs, Log: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, ErrNotRunning) {
		t.Errorf("got %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dirs.Run, "*")); len(left) > 0 || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("made %v", left)
	}
}

// TestContainerdDiesMeanwhile: Open tries again if podrun's own containerd dies meanwhile, but
// not for any other containerd.
func TestContainerdDiesMeanwhile(t *testing.T) {
	t.Parallel()
	lost := fmt.Errorf("asking for plugins: %w", runtime.ErrUnavailable)
	killed := fmt.Errorf("the embedded containerd: %w", embedded.ErrKilled)
	for _, c := range []struct {
		address string
		errs    []error
		tries   int
		fails   bool
	}{
		{address: Embedded, errs: []error{lost}, tries: 2},
		{address: Embedded, errs: []error{killed, lost}, tries: 3},
		{address: Embedded, errs: []error{lost, lost, lost}, tries: 3, fails: true},
		{address: Embedded, errs: []error{embedded.ErrNoRunc}, tries: 1, fails: true},
		{address: Embedded, errs: []error{ErrNotRunning}, tries: 1, fails: true},
		{address: "/a.sock", errs: []error{lost}, tries: 1, fails: true},
	} {
		tries := 0
		_, err := retried(t.Context(), func() (*Connection, error) {
			tries++
			if tries <= len(c.errs) {
				return nil, &UnreachableError{Address: c.address, Err: c.errs[tries-1]}
			}
			return &Connection{}, nil
		})
		if tries != c.tries || (err != nil) != c.fails {
			t.Errorf("%s after %v: %d tries, %v", c.address, c.errs, tries, err)
		}
	}
}
