package cri

import (
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// FuzzRead reads files that podrun did not necessarily write. Read adds nothing: its output is no
// longer than the log, and the last lines are the end of the whole output.
func FuzzRead(f *testing.F) {
	f.Add([]byte(sample), []byte{}, false, uint8(2))
	f.Add([]byte("not CRI\n2026-01-02T15:04:01.5+01:00 stdout F:x tagged\n2026-01-02T15:04:01Z stdout F\ncut of"), []byte(sample), false, uint8(1))
	f.Add([]byte(sample), []byte(sample), true, uint8(3))
	f.Add([]byte("a stderr P b\na stdout P c\na stderr P d"), []byte("a stdout P \n"), true, uint8(0))
	f.Add([]byte(sample), []byte("no gzip"), false, uint8(9))
	f.Fuzz(func(t *testing.T, text, older []byte, zip bool, n uint8) {
		path := filepath.Join(t.TempDir(), "0.log")
		must(t, os.WriteFile(path, text, 0o600))
		if len(older) > 0 {
			part := segmentPath(path, 1, time.Unix(1000, 0))
			stored := older
			if zip {
				var b bytes.Buffer
				w := gzip.NewWriter(&b)
				_, err := w.Write(older)
				must(t, err)
				must(t, w.Close())
				part, stored = part+CompressedSuffix, b.Bytes()
			}
			must(t, os.WriteFile(part, stored, 0o600))
		}
		read := func(o ReadOptions) [2]string {
			var out, errOut bytes.Buffer
			must(t, Read(context.Background(), path, o, &out, &errOut))
			return [2]string{out.String(), errOut.String()}
		}
		whole := read(ReadOptions{})
		// A foreign end without a newline is given one, in each file.
		if got := len(whole[0]) + len(whole[1]); got > len(text)+len(older)+2 {
			t.Errorf("%d bytes of a log of %d", got, len(text)+len(older))
		}
		all := 1 << 30
		if got := read(ReadOptions{Tail: &all}); got != whole {
			t.Errorf("all of the last lines: %q, want %q", got, whole)
		}
		last := int(n)
		tail := read(ReadOptions{Tail: &last})
		lines := 0
		for s := range tail {
			if !strings.HasSuffix(whole[s], tail[s]) {
				t.Errorf("the last %d lines: %q is no end of %q", n, tail[s], whole[s])
			}
			lines += strings.Count(tail[s], "\n")
			if !strings.HasSuffix(tail[s], "\n") && tail[s] != "" {
				lines++
			}
		}
		if lines > last {
			t.Errorf("the last %d lines are %d: %q", last, lines, tail)
		}
		if got := read(ReadOptions{Since: time.Unix(0, 0)}); len(got[0])+len(got[1]) > len(whole[0])+len(whole[1]) {
			t.Errorf("more of a time on than at all: %q", got)
		}
	})
}

// FuzzReadPacked reads a compressed part that may be damaged: Read may only return an error.
func FuzzReadPacked(f *testing.F) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(sample))
	must(f, err)
	must(f, w.Close())
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:b.Len()/2])
	f.Add([]byte("no gzip"))
	f.Fuzz(func(t *testing.T, stored []byte) {
		path := filepath.Join(t.TempDir(), "0.log")
		must(t, os.WriteFile(path, []byte(sample), 0o600))
		must(t, os.WriteFile(segmentPath(path, 1, time.Unix(1000, 0))+CompressedSuffix, stored, 0o600))
		all := 1 << 30
		for _, o := range []ReadOptions{{}, {Tail: &all}} {
			var out bytes.Buffer
			if err := Read(context.Background(), path, o, &out, &out); err == nil && !strings.HasSuffix(out.String(), "six without end") {
				t.Errorf("%q", out.String())
			}
		}
	})
}
