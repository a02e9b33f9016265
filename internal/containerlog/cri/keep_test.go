package cri

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestKept: a log that was kept is read as a whole or from its end after its files were removed, any
// number of times.
func TestKept(t *testing.T) {
	t.Parallel()
	compress := func(path string) {
		text, err := os.ReadFile(path)
		must(t, err)
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, err = z.Write(text)
		must(t, errors.Join(err, z.Close(), os.WriteFile(path+CompressedSuffix, packed.Bytes(), 0o600), os.Remove(path)))
	}
	for name, change := range map[string]func(log string, segments []string){
		"as rotated":      func(string, []string) {},
		"compressed":      func(_ string, segments []string) { compress(segments[0]); compress(segments[1]) },
		"all compressed":  func(log string, segments []string) { compress(segments[2]); must(t, os.Remove(log)) },
		"no current file": func(log string, _ []string) { must(t, os.Remove(log)) },
		"no segments":     func(_ string, segments []string) { must(t, os.Remove(segments[0])) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			line := func(text string) string { return "2026-01-02T15:04:05.000000000Z stdout F " + text + "\n" }
			log := write(t, line("seven")+line("eight"))
			var segments []string
			for n, text := range []string{line("one") + line("two"), line("three") + line("four"), line("five") + line("six")} {
				segments = append(segments, segmentPath(log, n+1, time.Now()))
				must(t, os.WriteFile(segments[n], []byte(text), 0o600))
			}
			change(log, segments)
			three, none := 3, 0
			want := map[*int]string{nil: "", &three: "", &none: ""}
			for tail := range want {
				var out bytes.Buffer
				must(t, Read(t.Context(), log, ReadOptions{Tail: tail}, &out, &out))
				want[tail] = out.String()
			}
			if strings.Count(want[nil], "\n") < 6 || strings.Count(want[&three], "\n") != 3 {
				t.Fatalf("the log is %q", want[nil])
			}
			kept, err := Keep(log)
			must(t, err)
			defer kept.Close()
			must(t, os.RemoveAll(filepath.Dir(log)))
			for range 2 {
				for tail, want := range want {
					var out bytes.Buffer
					if err := kept.Read(t.Context(), tail, &out, &out); err != nil || out.String() != want {
						t.Errorf("got %q, %v, want %q", out.String(), err, want)
					}
				}
			}
			if _, err := Keep(log); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("without files: %v", err)
			}
		})
	}
}
