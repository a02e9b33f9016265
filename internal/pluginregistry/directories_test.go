package pluginregistry

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"podrun.io/podrun/internal/sys/watch"
)

// watches returns how many directories this process watches.
func watches(t *testing.T) (n int) {
	t.Helper()
	all, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		text, _ := os.ReadFile(one) // it may be closed by now
		n += strings.Count(string(text), "inotify wd:")
	}
	return n
}

// TestMostDirectories: no more directories are watched than the machine bears, the first ones stay, and one that is
// removed is not watched any more. It is not parallel, for it counts.
func TestMostDirectories(t *testing.T) {
	dir, err := os.MkdirTemp("", "pr") // short enough for sockets
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	r, w := New(Options{Dir: dir, File: filepath.Join(t.TempDir(), "refused"), Log: log}), watch.New(slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.Run(ctx) }()
	defer func() { cancel(); <-done }()
	paths := []string{filepath.Join(dir, "z")}
	for i := range 2 * mostDirectories {
		paths = append(paths, filepath.Join(dir, fmt.Sprintf("a%03d", i)))
	}
	find := func(want int) {
		t.Helper()
		found, err := r.find(w)
		if err != nil || len(found) != want || len(r.watched) > mostDirectories {
			t.Errorf("%d sockets, %d directories, %v", len(found), len(r.watched), err)
		}
	}
	for i, path := range paths {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			continue
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(path, "s"), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for deadline := time.Now().Add(10 * time.Second); watches(t) < 2 && time.Now().Before(deadline); { // Run begins
			find(1)
		}
	}
	find(1)
	find(1)
	if n := watches(t); n != mostDirectories {
		t.Errorf("%d directories are watched", n)
	}
	if n := strings.Count(logged.String(), "too many directories"); n != 1 {
		t.Errorf("%d warnings: %s", n, &logged)
	}
	for _, path := range paths[1:] {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	find(1)
	if n := watches(t); n != 2 || len(r.watched) != 2 || r.crowded {
		t.Errorf("%d directories are watched, of %d", n, len(r.watched))
	}
}
