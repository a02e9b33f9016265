package watch

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// start runs a Watcher until the test ends.
func start(t *testing.T, paths ...string) *Watcher {
	t.Helper()
	w := New(slog.New(slog.DiscardHandler))
	for _, p := range paths {
		if err := w.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for range paths {
		ring(t, w, "")
	}
	return w
}

// ring waits for a ring of path; "" takes any.
func ring(t *testing.T, w *Watcher, path string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case got := <-w.Events():
			if path == "" || got == path {
				return
			}
		case <-deadline:
			t.Fatalf("no ring of %q", path)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "log")
	write(t, file, "")
	w := start(t, dir, file)
	write(t, filepath.Join(dir, "a"), "x")
	ring(t, w, dir)
	write(t, file, "line")
	ring(t, w, file)
	if err := os.Rename(filepath.Join(dir, "a"), filepath.Join(t.TempDir(), "b")); err != nil {
		t.Fatal(err)
	}
	ring(t, w, dir)
}

func TestTwoNamesOfOneDirectoryBothRing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	w := start(t, link, dir)
	write(t, filepath.Join(dir, "a"), "x")
	heard := map[string]bool{}
	for len(heard) < 2 {
		select {
		case p := <-w.Events():
			heard[p] = true
		case <-time.After(time.Minute):
			t.Fatalf("only %v rang", heard)
		}
	}
}

func TestAddAgainAfterReplacement(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w := start(t, dir)
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	ring(t, w, dir)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := w.Add(dir); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "a"), "x")
	ring(t, w, dir)
}

func TestAddOfNothing(t *testing.T) {
	t.Parallel()
	w := start(t, t.TempDir())
	if err := w.Add(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
