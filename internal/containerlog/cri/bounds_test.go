package cri

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func zipped(t *testing.T, text []byte) []byte {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write(text)
	must(t, errors.Join(err, z.Close()))
	return packed.Bytes()
}

type counter int

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// TestSegmentsTakeLittleMemory: a member of the log directory's group may put any file there, such as one of a few KB
// that unpacks to gigabytes, or one with a line without an end.
func TestSegmentsTakeLittleMemory(t *testing.T) {
	const most = 4 << 20
	zeros, text, head := make([]byte, 1<<20), bytes.Repeat([]byte("x"), 1<<20), []byte("2026-01-02T15:04:05.000000000Z stdout F ")
	entries := bytes.Repeat(fmt.Appendf(nil, "%s%s\n", head, strings.Repeat("y", 983)), 1<<10)
	one, million := 1, 1_000_000
	for name, piece := range map[string][]byte{"zeros": zeros, "text": text, "entries": entries} {
		for _, suffix := range []string{CompressedSuffix, "", "current"} {
			log, begin, stored := filepath.Join(t.TempDir(), "0.log"), head, piece
			path, pieces := segmentPath(log, 1, time.Now())+suffix, 32
			switch suffix {
			case CompressedSuffix: // the file has several streams
				begin, stored, pieces = zipped(t, head), zipped(t, piece), 256
			case "current":
				path = log
			}
			if name == "entries" {
				begin = nil
			}
			f, err := os.Create(path)
			must(t, err)
			_, err = f.Write(begin)
			for range pieces {
				_, more := f.Write(stored)
				err = errors.Join(err, more)
			}
			must(t, errors.Join(err, f.Close()))
			for _, tail := range []*int{nil, &one, &million} {
				want := pieces*len(piece) + 1
				if name == "entries" {
					want = pieces << 10 * 984
					if tail == &one {
						want = 984
					}
				}
				var out counter
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				err := Read(t.Context(), log, ReadOptions{Tail: tail}, &out, &out)
				runtime.ReadMemStats(&after)
				if used := after.TotalAlloc - before.TotalAlloc; used > most || err != nil || int(out) != want {
					t.Errorf("%s, %q: it took %d KiB to read %d bytes of %d, %v", name, suffix, used>>10, out, want, err)
				}
			}
			must(t, os.Remove(path))
		}
	}
}

// TestCompressedAsPlain: the same lines are the last ones whether segments are compressed or not, however long they
// are.
func TestCompressedAsPlain(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var long int
	for range 100 {
		plain, packed := filepath.Join(t.TempDir(), "0.log"), filepath.Join(t.TempDir(), "0.log")
		lines := 0
		for number := range 1 + random.IntN(4) {
			var text bytes.Buffer
			for range random.IntN(8) {
				n := random.IntN(20)
				if random.IntN(20) == 0 {
					n, long = maxEntry*random.IntN(3)+random.IntN(80)-60, long+1
				}
				head := []string{"2026-01-02T15:04:05Z stdout F ", "2026-01-02T15:04:05Z stdout P ",
					"2026-01-02T15:04:05Z stderr F ", "2026-01-02T15:04:05Z stderr P ", "foreign"}[random.IntN(5)]
				fmt.Fprintf(&text, "%s%s\n", head, strings.Repeat(string(rune('a'+random.IntN(26))), max(n, 0)))
				lines++
			}
			if random.IntN(5) == 0 && text.Len() > 0 {
				text.Truncate(text.Len() - 1)
			}
			name := filepath.Base(segmentPath(plain, number+1, time.Now()))
			must(t, errors.Join(os.WriteFile(filepath.Join(filepath.Dir(plain), name), text.Bytes(), 0o600),
				os.WriteFile(filepath.Join(filepath.Dir(packed), name+CompressedSuffix), zipped(t, text.Bytes()), 0o600)))
		}
		for n := range lines + 2 {
			var got, want [2]bytes.Buffer
			must(t, Read(t.Context(), plain, ReadOptions{Tail: &n}, &want[0], &want[1]))
			must(t, Read(t.Context(), packed, ReadOptions{Tail: &n}, &got[0], &got[1]))
			for s := range want {
				checkOmit(t, []string{plain, packed}, Stream(1-s), n)
			}
			if got[0].String() != want[0].String() || got[1].String() != want[1].String() {
				t.Fatalf("the last %d of %d lines in %s: got %.300q and %.300q, want %.300q and %.300q", n, lines, plain,
					got[0].String(), got[1].String(), want[0].String(), want[1].String())
			}
		}
	}
	if long < 20 {
		t.Errorf("%d long lines", long)
	}
}

// checkOmit checks that the last n lines of one stream are the end of all of its lines, and as many as are asked for: an
// empty last line without an end counts too.
func checkOmit(t *testing.T, paths []string, omit Stream, n int) {
	t.Helper()
	o := ReadOptions{}
	o.Omit[omit] = true
	var all bytes.Buffer
	must(t, Read(t.Context(), paths[0], o, &all, &all))
	o.Tail = &n
	for _, path := range paths {
		var got bytes.Buffer
		must(t, Read(t.Context(), path, o, &got, &got))
		text := got.String()
		lines := strings.Count(text, "\n")
		if text != "" && !strings.HasSuffix(text, "\n") {
			lines++
		}
		if !strings.HasSuffix(all.String(), text) || lines > n || lines < n-1 && text != all.String() {
			t.Fatalf("the last %d lines without %s in %s: %.300q of %.300q", n, omit, path, text, all.String())
		}
	}
}

// TestLongEntries: an entry that is read piece by piece is delivered as it is, with its time once.
func TestLongEntries(t *testing.T) {
	t.Parallel()
	for _, n := range []int{maxEntry - 31, maxEntry - 30, maxEntry - 29, maxEntry, 3 * maxEntry} {
		long := strings.Repeat("x", n)
		const stamp = "2026-01-02T15:04:05Z "
		path := write(t, stamp+"stdout P "+long+"\n"+stamp+"stderr F "+long+"\n"+stamp+"stdout F b\n"+long+"\n"+stamp+"stderr F "+long)
		for tail, want := range map[int][2]string{
			5: {stamp + long + "b\n" + long + "\n", stamp + long + "\n" + stamp + long + "\n"},
			3: {stamp + long + "b\n" + long + "\n", stamp + long + "\n"},
			1: {"", stamp + long + "\n"},
		} {
			var got [2]bytes.Buffer
			must(t, Read(t.Context(), path, ReadOptions{Tail: &tail, Timestamps: true}, &got[0], &got[1]))
			if got[0].String() != want[0] || got[1].String() != want[1] {
				t.Errorf("%d bytes, the last %d lines: %d and %d bytes, want %d and %d",
					n, tail, got[0].Len(), got[1].Len(), len(want[0]), len(want[1]))
			}
		}
	}
}
