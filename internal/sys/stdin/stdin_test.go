package stdin_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys/stdin"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// over is a context that leaves no time.
func over(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestNobodyReads(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "stdin")
	if _, err := stdin.Open(t.Context(), path); !errors.Is(err, stdin.ErrClosed) {
		t.Errorf("no pipe: %v", err)
	}
	must(t, stdin.Make(path))
	if _, err := stdin.Open(over(t), path); !errors.Is(err, stdin.ErrClosed) {
		t.Errorf("no reader: %v", err)
	}
	must(t, stdin.Remove(path))
	must(t, stdin.Remove(path))
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error("not removed")
	}
}

// TestWriters: a reader that opens the pipe late gets the text of all writers until the last one
// has closed.
func TestWriters(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "stdin")
	must(t, stdin.Make(path))
	got := make(chan string)
	time.AfterFunc(20*time.Millisecond, func() {
		defer close(got)
		r, err := os.Open(path)
		if err != nil {
			t.Error(err)
			return
		}
		text, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			t.Error(err)
		}
		got <- string(text)
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	one, err := stdin.Open(ctx, path)
	must(t, err)
	two, err := stdin.Open(ctx, path)
	must(t, err)
	_, err = one.WriteString("one")
	must(t, err)
	must(t, one.Close())
	_, err = two.WriteString("two")
	must(t, err)
	must(t, two.Close())
	if text := <-got; text != "onetwo" {
		t.Errorf("read %q", text)
	}
	if _, err := stdin.Open(over(t), path); !errors.Is(err, stdin.ErrClosed) {
		t.Errorf("its reader has gone: %v", err)
	}
}

// TestMadeAnew: a new pipe is independent of the pipe that it replaces.
func TestMadeAnew(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "stdin")
	must(t, stdin.Make(path))
	before, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer before.Close()
	must(t, stdin.Make(path))
	if _, err := stdin.Open(over(t), path); !errors.Is(err, stdin.ErrClosed) {
		t.Errorf("the reader of the one before: %v", err)
	}
}

// TestKilledWriter: a killed writer counts as one that has closed.
func TestKilledWriter(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "stdin")
	must(t, stdin.Make(path))
	r, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	must(t, err)
	defer r.Close()
	w, err := stdin.Open(t.Context(), path)
	must(t, err)
	writer := exec.Command("sleep", "1000")
	writer.Stdout = w
	must(t, writer.Start())
	must(t, w.Close())
	must(t, writer.Process.Kill())
	_ = writer.Wait() // killed
	if text, err := io.ReadAll(r); err != nil || len(text) > 0 {
		t.Errorf("%q, %v", text, err)
	}
}
