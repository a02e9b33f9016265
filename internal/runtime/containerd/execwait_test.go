package containerd_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/containerd/daemontest"
)

// fall kills the daemon at once, and rise starts it again.
func fall(t *testing.T, d daemontest.Daemon) {
	t.Helper()
	if d.Server == nil {
		killDaemon(t, d)
	} else if err := d.Server.Kill(); err != nil {
		t.Fatal(err)
	}
}

func rise(t *testing.T, r rig) {
	t.Helper()
	if r.daemon.Server == nil {
		revive(t, r)
		return
	}
	if err := r.daemon.Server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// ran is the result of an exec'd command.
type ran struct {
	code int
	err  error
}

// background starts a command and returns when the command has written "here". Because the command
// has an input, its output is delivered only once it is known to have started.
func (r rig) background(t *testing.T, ctx context.Context, id, line string, streams runtime.ExecIO) <-chan ran {
	t.Helper()
	said, pipe := io.Pipe()
	rest := streams.Stdout
	if rest == nil {
		rest = io.Discard
	}
	done, copied := make(chan ran, 1), make(chan struct{})
	streams.Stdout = pipe
	if streams.Stdin == nil {
		none, end := io.Pipe()
		t.Cleanup(func() { end.Close() })
		streams.Stdin = none
	}
	go func() {
		code, err := r.Exec(ctx, id, []string{"sh", "-c", "echo here; " + line}, streams)
		pipe.Close()
		<-copied
		done <- ran{code, err}
	}()
	_, err := io.ReadFull(said, make([]byte, len("here\n")))
	go func() {
		defer close(copied)
		_, _ = io.Copy(rest, said) // until it is closed
	}()
	if err != nil {
		t.Fatal(err, <-done)
	}
	return done
}

func (r rig) touch(t *testing.T, pid int, name string) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/root/%s", pid, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestExecOutlivesTheDaemon checks that an exec'd command and the copying of its streams continue
// while containerd is down, and that its exit code is returned afterwards even if it exited
// meanwhile.
func TestExecOutlivesTheDaemon(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, start(t), "sleep 1000")
			c := r.run(t)
			var got bytes.Buffer
			in, feed := io.Pipe()
			cat := r.background(t, t.Context(), c.ID, "cat; exit 4", runtime.ExecIO{Stdin: in, Stdout: &got})
			meanwhile := r.background(t, t.Context(), c.ID, "until [ -e /one ]; do sleep 0.02; done; touch /ended; exit 5", runtime.ExecIO{})
			after := r.background(t, t.Context(), c.ID, "until [ -e /two ]; do sleep 0.02; done; exit 6", runtime.ExecIO{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cut := r.background(t, ctx, c.ID, "exec sleep 1234", runtime.ExecIO{})
			data := make([]byte, 3<<20)
			_, _ = rand.Read(data)
			if _, err := feed.Write(data[:1<<20]); err != nil {
				t.Fatal(err)
			}
			fall(t, r.daemon)
			if _, err := feed.Write(data[1<<20 : 2<<20]); err != nil {
				t.Fatal(err)
			}
			r.touch(t, c.PID, "one")
			daemontest.Eventually(t, "the command has ended", func() bool {
				_, err := os.Stat(fmt.Sprintf("/proc/%d/root/ended", c.PID))
				return err == nil
			})
			rise(t, r)
			if _, err := feed.Write(data[2<<20:]); err != nil {
				t.Fatal(err)
			}
			feed.Close()
			r.touch(t, c.PID, "two")
			for _, e := range []struct {
				name string
				done <-chan ran
				want int
			}{{"a pipe", cat, 4}, {"ended meanwhile", meanwhile, 5}, {"ended after", after, 6}} {
				if got := <-e.done; got != (ran{e.want, nil}) {
					t.Errorf("%s: %+v, want %d", e.name, got, e.want)
				}
			}
			if !bytes.Equal(got.Bytes(), data) {
				t.Errorf("%d bytes came back of %d, or others", got.Len(), len(data))
			}
			cancel() // that containerd was away says nothing of what it does
			if got := <-cut; !errors.Is(got.err, context.Canceled) || !errors.Is(got.err, runtime.ErrUnavailable) {
				t.Errorf("cut off: %+v", got)
			}
			if code, err := r.Exec(t.Context(), c.ID, []string{"sh", "-c", "! ps | grep -E '[s]leep 1234'"}, runtime.ExecIO{}); code != 0 || err != nil {
				t.Errorf("it was not killed: %d, %v", code, err)
			}
		})
	}
}

// TestExecWhenTheShimDies kills the shim during a command: the command's exit code is unknown, and
// its container has exited.
func TestExecWhenTheShimDies(t *testing.T) {
	for name, start := range daemontest.Kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, start(t), "sleep 1000")
			c := r.run(t)
			in, feed := io.Pipe()
			defer feed.Close()
			running := r.background(t, t.Context(), c.ID, "sleep 1000", runtime.ExecIO{})
			reading := r.background(t, t.Context(), c.ID, "cat", runtime.ExecIO{Stdin: in})
			if err := syscall.Kill(parent(t, c.PID), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			for _, done := range []<-chan ran{running, reading} {
				select {
				case got := <-done:
					if !errors.Is(got.err, runtime.ErrNotFound) {
						t.Errorf("%+v", got)
					}
				case <-time.After(20 * time.Second):
					t.Fatal("it hangs")
				}
			}
			if left, err := filepath.Glob(filepath.Join(r.Dirs.Fifos(), "*", "*")); err != nil || len(left) > 0 {
				t.Errorf("pipes left: %v, %v", left, err)
			}
		})
	}
}

// lateFailure is a writer that fails after the command has exited, and the wait for its output would be over.
type lateFailure struct{}

func (lateFailure) Write([]byte) (int, error) {
	time.Sleep(4 * time.Second)
	return 0, syscall.ENOSPC
}

// TestExecWriteFailsLate: a write that fails when the command has exited is the error of the exec.
func TestExecWriteFailsLate(t *testing.T) {
	t.Parallel()
	r := newRig(t, daemontest.Embedded(t), "sleep 1000")
	c := r.run(t)
	_, err := r.Exec(t.Context(), c.ID, []string{"echo", "x"}, runtime.ExecIO{Stdout: lateFailure{}})
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("error %v", err)
	}
}
