package cri

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"podrun.io/podrun/internal/test"
)

var must, eventually = test.Must, test.Eventually

const sample = `2026-01-02T15:04:01.000000000Z stdout F one
2026-01-02T15:04:02.000000000Z stderr F two
2026-01-02T15:04:03.000000000Z stdout P thr
2026-01-02T15:04:03.000000000Z stderr F four
2026-01-02T15:04:04.000000000Z stdout F ee
2026-01-02T15:04:05.000000000Z stdout F five
2026-01-02T15:04:06.000000000Z stdout P six without end
`

func write(t testing.TB, text string) string {
	path := filepath.Join(t.TempDir(), "0.log")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestRead(t *testing.T) {
	t.Parallel()
	path := write(t, sample)
	n := func(n int) *int { return &n }
	since := time.Date(2026, 1, 2, 15, 4, 3, 0, time.UTC)
	for _, c := range []struct {
		name        string
		o           ReadOptions
		out, errOut string
	}{
		{"all", ReadOptions{}, "one\nthree\nfive\nsix without end", "two\nfour\n"},
		{"none", ReadOptions{Tail: n(0)}, "", ""},
		{"the last", ReadOptions{Tail: n(1)}, "six without end", ""},
		{"the last two", ReadOptions{Tail: n(2)}, "five\nsix without end", ""},
		{"a line in parts, without the other stream's between", ReadOptions{Tail: n(3)}, "three\nfive\nsix without end", ""},
		{"the other stream's", ReadOptions{Tail: n(4)}, "three\nfive\nsix without end", "four\n"},
		{"more than there are", ReadOptions{Tail: n(100)}, "one\nthree\nfive\nsix without end", "two\nfour\n"},
		{"of one stream", ReadOptions{Omit: [2]bool{Stdout: true}}, "", "two\nfour\n"},
		{"of one stream, the last", ReadOptions{Omit: [2]bool{Stdout: true}, Tail: n(1)}, "", "four\n"},
		{"of the other, the last two", ReadOptions{Omit: [2]bool{Stderr: true}, Tail: n(2)}, "five\nsix without end", ""},
		{"since", ReadOptions{Since: since}, "three\nfive\nsix without end", "four\n"},
		{"since the middle of a line", ReadOptions{Since: since.Add(time.Second)}, "five\nsix without end", ""},
		{"timestamps", ReadOptions{Tail: n(3), Timestamps: true}, "2026-01-02T15:04:03.000000000Z three\n" +
			"2026-01-02T15:04:05.000000000Z five\n2026-01-02T15:04:06.000000000Z six without end", ""},
	} {
		var out, errOut bytes.Buffer
		must(t, Read(context.Background(), path, c.o, &out, &errOut))
		if out.String() != c.out || errOut.String() != c.errOut {
			t.Errorf("%s: got %q and %q", c.name, out.String(), errOut.String())
		}
	}
}

func TestReadForeign(t *testing.T) {
	t.Parallel()
	path := write(t, "not CRI\n2026-01-02T15:04:01.5+01:00 stdout F:x tagged\n2026-01-02T15:04:01Z stdout F\ncut of")
	var out bytes.Buffer
	must(t, Read(context.Background(), path, ReadOptions{}, &out, &out))
	if out.String() != "not CRI\ntagged\n\ncut of\n" {
		t.Errorf("got %q", out.String())
	}
}

func TestReadNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "absent")
	var out bytes.Buffer
	stop := make(chan struct{})
	close(stop)
	for _, o := range []ReadOptions{{}, {Follow: true, Stop: stop}} {
		if err := Read(context.Background(), path, o, &out, &out); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	}
}

func TestOrderOnOneTerminal(t *testing.T) {
	t.Parallel()
	var both bytes.Buffer
	must(t, Read(context.Background(), write(t, sample[:strings.Index(sample, "2026-01-02T15:04:03")]), ReadOptions{}, &both, &both))
	if both.String() != "one\ntwo\n" {
		t.Errorf("got %q", both.String())
	}
}

func TestFollowAcrossRotationUntilStop(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	add := func(text string) {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		must(t, err)
		_, err = f.WriteString("2026-01-02T15:04:01.000000000Z stdout F " + text + "\n")
		must(t, errors.Join(err, f.Close()))
	}
	var out test.Buffer
	stop, done := make(chan struct{}), make(chan error)
	go func() {
		done <- Read(context.Background(), path, ReadOptions{Follow: true, Stop: stop}, &out, &out)
	}()
	add("one")
	eventually(t, "the first line", func() bool { return out.String() == "one\n" })
	add("two")
	must(t, os.Rename(path, path+".1"))
	add("three")
	eventually(t, "the next file", func() bool { return out.String() == "one\ntwo\nthree\n" })
	add("four")
	close(stop)
	must(t, <-done)
	if out.String() != "one\ntwo\nthree\nfour\n" {
		t.Errorf("got %q", out.String())
	}
}

// TestSinceSkipsSegments: segments whose last entry is too old are not read.
func TestSinceSkipsSegments(t *testing.T) {
	t.Parallel()
	log, now := write(t, sample), time.Now()
	for n, age := range []time.Duration{3 * time.Hour, 2 * time.Hour, time.Minute} {
		at := now.Add(-age)
		must(t, os.WriteFile(segmentPath(log, n+1, at), []byte(sample), 0o600))
		must(t, os.Chtimes(segmentPath(log, n+1, at), at, at))
	}
	for since, want := range map[time.Duration]int{4 * time.Hour: 1, time.Hour: 3, 0: 4} {
		if number, err := firstSince(onDisk(log), now.Add(-since)); err != nil || number != want {
			t.Errorf("since %s: from segment %d, %v, want %d", since, number, err, want)
		}
	}
}

// TestFollowOfShorterLog: a log that was emptied is read from its start; one that was cut back is
// read from the same offset.
func TestFollowOfShorterLog(t *testing.T) {
	t.Parallel()
	path := write(t, sample)
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	r := &reader{files: onDisk(path), from: &logFile{ReaderAt: f, file: f, number: 1, current: true}, options: ReadOptions{Follow: true}}
	for size, again := range map[int64]bool{40: false, 0: true} {
		r.at = int64(len(sample))
		must(t, os.Truncate(path, size))
		if got, err := r.replaced(); err != nil || got != again || (r.at == 0) != again {
			t.Errorf("cut to %d: again %v from %d, %v", size, got, r.at, err)
		}
		must(t, os.WriteFile(path, []byte(sample), 0o600))
	}
}

func TestFollowEndsWithContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	var out test.Buffer
	done := make(chan error)
	go func() { done <- Read(ctx, write(t, sample), ReadOptions{Follow: true}, &out, &out) }()
	eventually(t, "output", func() bool { return strings.HasSuffix(out.String(), "six without end") })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// BenchmarkTailOfBigLog finds the last lines of a big log, which does not require reading all of
// it.
func BenchmarkTailOfBigLog(b *testing.B) {
	path := filepath.Join(b.TempDir(), "0.log")
	must(b, os.WriteFile(path, bytes.Repeat([]byte("2026-01-02T15:04:01.000000000Z stdout F some text that is there\n"), 1<<20), 0o600))
	ten := 10
	for b.Loop() {
		var out bytes.Buffer
		must(b, Read(context.Background(), path, ReadOptions{Tail: &ten}, &out, &out))
	}
}

func BenchmarkRead(b *testing.B) {
	path := filepath.Join(b.TempDir(), "0.log")
	text := bytes.Repeat([]byte("2026-01-02T15:04:01.000000000Z stdout F "+strings.Repeat("x", 100)+"\n"), 1<<17)
	must(b, os.WriteFile(path, text, 0o600))
	b.SetBytes(int64(len(text)))
	var out bytes.Buffer
	for b.Loop() {
		out.Reset()
		must(b, Read(context.Background(), path, ReadOptions{}, &out, &out))
	}
}

// TestCaughtUp: a reader says that it has delivered all that the log has, also if there is no log yet.
func TestCaughtUp(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	var at []int
	err := Read(ctx, path, ReadOptions{Follow: true, CaughtUp: func() {
		switch at = append(at, out.Len()); len(at) {
		case 1:
			must(t, os.WriteFile(path, []byte(sample), 0o600))
		case 2:
			cancel()
		}
	}}, &out, &out)
	if !errors.Is(err, context.Canceled) || len(at) != 2 || at[0] != 0 || at[1] != out.Len() || out.Len() == 0 {
		t.Errorf("caught up after %v of %d bytes, %v", at, out.Len(), err)
	}
}
