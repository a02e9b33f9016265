package containerlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"podrun.io/podrun/internal/containerlog/cri"
	"podrun.io/podrun/internal/test"
)

// shim opens a stream as the shim does.
func (r fixture) shim(s cri.Stream) *os.File {
	f, err := os.OpenFile(rawPath(r.rawDir(), s), os.O_APPEND|os.O_WRONLY, 0)
	must(r.t, err)
	return f
}

func (r fixture) live() *Live {
	l, err := OpenLive(r.dirs, r.inst)
	must(r.t, err)
	r.t.Cleanup(l.Close)
	return l
}

func TestLive(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	out, errOut := r.shim(cri.Stdout), r.shim(cri.Stderr)
	_, err := io.WriteString(out, "before\n")
	must(t, err)
	l := r.live()
	var got, gotErr test.Buffer
	done := make(chan error, 1)
	go func() { done <- l.Copy(context.Background(), &got, &gotErr, quiet) }()
	_, err = io.WriteString(out, "a prompt> ")
	must(t, err)
	eventually(t, "the prompt", func() bool { return got.String() == "a prompt> " })
	_, err = io.WriteString(errOut, "oops")
	must(t, err)
	eventually(t, "the error", func() bool { return gotErr.String() == "oops" })
	_, err = io.WriteString(out, "the end")
	must(t, errors.Join(err, out.Close(), errOut.Close()))
	must(t, <-done)
	if got.String() != "a prompt> the end" || gotErr.String() != "oops" {
		t.Errorf("%q, %q", got.String(), gotErr.String())
	}
}

func TestLiveEnds(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	shim := r.shim(cri.Stdout)
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
	r := newFixture(t)
	shim := r.shim(cri.Stdout)
	l := r.live()
	var want strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&want, "line %d of many\n", i)
	}
	_, err := io.WriteString(shim, want.String())
	must(t, err)
	must(t, catchUp(context.Background(), r.dirs, r.inst))
	must(t, shim.Close())
	var got test.Buffer
	must(t, l.Copy(context.Background(), &got, io.Discard, quiet))
	if got.String() != want.String() {
		t.Errorf("%d bytes of %d, or others", len(got.String()), want.Len())
	}
	// With nobody there it is freed.
	l.Close()
	shim = r.shim(cri.Stdout)
	defer shim.Close()
	freed := func() int64 {
		_, err = io.WriteString(shim, strings.Repeat("more\n", punchStep))
		must(t, err)
		must(t, catchUp(context.Background(), r.dirs, r.inst))
		c := newConverter(r.dirs, r.inst, Rotation{})
		defer c.close()
		return c.firstData(cri.Stdout)
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
func (r fixture) frees() bool {
	path := r.dirs.Log + "-probe"
	must(r.t, os.WriteFile(path, make([]byte, 2*punchStep), 0o600))
	return realDisk{}.Punch(path, 0, punchStep) == nil
}

// TestLiveTooSlow: a reader that is too slow gets a message that output was freed, and continues
// with what is there.
func TestLiveTooSlow(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	if !r.frees() {
		t.Skip("this file system frees no part of a file")
	}
	shim := r.shim(cri.Stdout)
	l := r.live()
	_, err := shim.Write(bytes.Repeat([]byte("x"), 2*punchStep))
	must(t, errors.Join(err, shim.Close()))
	must(t, realDisk{}.Punch(rawPath(r.rawDir(), cri.Stdout), 0, readerBacklog)) // nobody is waited for with so much
	if err := (realDisk{}).Punch(rawPath(r.rawDir(), cri.Stdout), 0, punchStep); !errors.Is(err, errBusy) {
		t.Errorf("a little, with somebody there: %v", err)
	}
	l.Close()
	l = r.live()
	l.streams[cri.Stdout].at = 0
	f, err := os.OpenFile(rawPath(r.rawDir(), cri.Stdout), os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("rest"), punchStep+punchStep/2)
	must(t, errors.Join(err, f.Close()))
	var got, warned test.Buffer
	must(t, l.Copy(context.Background(), &got, &warned, quiet))
	if !strings.Contains(warned.String(), "bytes were not read in time") || !strings.Contains(got.String(), "rest") {
		t.Errorf("got %q, warned %q", strings.Trim(got.String(), "\x00"), warned.String())
	}
}
