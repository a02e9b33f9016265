package containerlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// text is a writer that may be looked at while it is written to.
type text struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *text) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(p)
}

func (w *text) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// awaited waits until the writer has got want.
func (w *text) awaited(t *testing.T, want string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); w.String() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("got %q, want %q", w.String(), want)
		}
	}
}

// shim opens a stream as the shim does.
func (r room) shim(s stream) *os.File {
	f, err := os.OpenFile(rawPath(r.rawDir(), s), os.O_APPEND|os.O_WRONLY, 0)
	must(r.t, err)
	return f
}

func (r room) live() *Live {
	l, err := OpenLive(r.dirs, r.inst)
	must(r.t, err)
	r.t.Cleanup(l.Close)
	return l
}

func TestLive(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	out, errOut := r.shim(stdout), r.shim(stderr)
	_, err := io.WriteString(out, "before\n")
	must(t, err)
	l := r.live()
	var got, gotErr text
	done := make(chan error, 1)
	go func() { done <- l.Copy(context.Background(), &got, &gotErr, quiet) }()
	_, err = io.WriteString(out, "a prompt> ")
	must(t, err)
	got.awaited(t, "a prompt> ")
	_, err = io.WriteString(errOut, "oops")
	must(t, err)
	gotErr.awaited(t, "oops")
	_, err = io.WriteString(out, "the end")
	must(t, errors.Join(err, out.Close(), errOut.Close()))
	must(t, <-done)
	if got.String() != "a prompt> the end" || gotErr.String() != "oops" {
		t.Errorf("%q, %q", got.String(), gotErr.String())
	}
}

func TestLiveEnds(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	shim := r.shim(stdout)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	l := r.live()
	go func() { done <- l.Copy(ctx, io.Discard, io.Discard, quiet) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	must(t, shim.Close())
	must(t, l.Copy(context.Background(), io.Discard, io.Discard, quiet))
	must(t, os.RemoveAll(r.rawDir()))
	must(t, r.live().Copy(context.Background(), io.Discard, io.Discard, quiet))
}

// TestLiveIsWaitedFor: a slow reader gets output that was converted long before, and after it has
// closed, that output is freed.
func TestLiveIsWaitedFor(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	shim := r.shim(stdout)
	l := r.live()
	var want strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&want, "line %d of many\n", i)
	}
	_, err := io.WriteString(shim, want.String())
	must(t, err)
	must(t, CatchUp(context.Background(), r.dirs, r.inst))
	must(t, shim.Close())
	var got text
	must(t, l.Copy(context.Background(), &got, io.Discard, quiet))
	if got.String() != want.String() {
		t.Errorf("%d bytes of %d, or others", len(got.String()), want.Len())
	}
	// With nobody there it is freed.
	l.Close()
	shim = r.shim(stdout)
	defer shim.Close()
	freed := func() int64 {
		_, err = io.WriteString(shim, strings.Repeat("more\n", punchStep))
		must(t, err)
		must(t, CatchUp(context.Background(), r.dirs, r.inst))
		c := newConverter(r.dirs, r.inst, Rotation{})
		defer c.close()
		return c.start(stdout)
	}
	// A child that another test is just forking shares the lock until it becomes another program.
	var upTo int64
	for tries := 0; tries < 5 && upTo < int64(want.Len()); tries++ {
		upTo = freed()
	}
	if r.frees() && upTo < int64(want.Len()) {
		t.Errorf("freed up to %d of %d", upTo, want.Len())
	}
}

// frees tells whether this file system can free a part of a file.
func (r room) frees() bool {
	path := r.dirs.Log + "-probe"
	must(r.t, os.WriteFile(path, make([]byte, 2*punchStep), 0o600))
	return realDisk{}.Punch(path, 0, punchStep) == nil
}

// TestLiveTooSlow: a reader that is too slow gets a message that output was freed, and continues
// with what is there.
func TestLiveTooSlow(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	if !r.frees() {
		t.Skip("this file system frees no part of a file")
	}
	shim := r.shim(stdout)
	l := r.live()
	_, err := shim.Write(bytes.Repeat([]byte("x"), 2*punchStep))
	must(t, errors.Join(err, shim.Close()))
	must(t, realDisk{}.Punch(rawPath(r.rawDir(), stdout), 0, keptForReaders)) // nobody is waited for with so much
	if err := (realDisk{}).Punch(rawPath(r.rawDir(), stdout), 0, punchStep); !errors.Is(err, errBusy) {
		t.Errorf("a little, with somebody there: %v", err)
	}
	l.Close()
	l = r.live()
	l.streams[stdout].at = 0
	f, err := os.OpenFile(rawPath(r.rawDir(), stdout), os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("rest"), punchStep+punchStep/2)
	must(t, errors.Join(err, f.Close()))
	var got, said text
	must(t, l.Copy(context.Background(), &got, &said, quiet))
	if !strings.Contains(said.String(), "bytes were not read in time") || !strings.Contains(got.String(), "rest") {
		t.Errorf("got %q, said %q", strings.Trim(got.String(), "\x00"), said.String())
	}
}
