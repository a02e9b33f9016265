package pipes_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"podrun.io/podrun/internal/sys/pipes"
)

// writer opens the pipe to write, as a shim does.
func writer(t *testing.T, path string) <-chan error {
	done := make(chan error, 1)
	go func() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			err = f.Close()
		}
		done <- err
	}()
	return done
}

func makePipe(t *testing.T, dir string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "x", "exec-stdout")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAdopt: a writer that waits for a killed reader, or opens the pipe later, does not block any
// more; the pipes of a living process are not touched.
func TestAdopt(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "fifo")
	if err := pipes.New(root).Adopt(); err != nil {
		t.Fatal("nothing there:", err)
	}
	living := pipes.New(root)
	dir, err := living.Dir()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := living.Dir(); err != nil || again != dir {
		t.Fatal(again, dir, err)
	}
	others := makePipe(t, dir)
	left := filepath.Join(root, "killed")
	pipe := makePipe(t, left)
	early := writer(t, pipe)
	p := pipes.New(root)
	if _, err := p.Dir(); err != nil {
		t.Fatal(err)
	}
	if err := p.Adopt(); err != nil {
		t.Fatal(err)
	}
	for name, done := range map[string]<-chan error{"early": early, "late": writer(t, pipe)} {
		select {
		case err := <-done:
			if err != nil {
				t.Error(name, err)
			}
		case <-time.After(10 * time.Second):
			t.Error(name, "still waits")
		}
	}
	if f, err := os.OpenFile(others, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
		f.Close()
		t.Error("the pipe of a living process was opened")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Error("it stays", err)
	}
	if _, err := os.Stat(others); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(filepath.Dir(others)); err != nil {
		t.Fatal(err)
	}
	if err := living.Close(); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) > 0 {
		t.Error(entries, err)
	}
}

// TestBegunBesideAdoption: processes start while another adopts left-over pipes.
func TestBegunBesideAdoption(t *testing.T) {
	root := t.TempDir()
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			p := pipes.New(root)
			if err := errors.Join(p.Adopt(), p.Close()); err != nil {
				stopped <- err
				return
			}
		}
	}()
	for range 2000 {
		p := pipes.New(root)
		if _, err := p.Dir(); err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
