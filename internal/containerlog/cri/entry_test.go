package cri

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestEntries(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxMessage)
	at := time.Date(2026, 1, 2, 15, 4, 5, 0, time.FixedZone("", 3600))
	head := "2026-01-02T14:04:05.000000000Z stdout "
	for _, c := range []struct {
		name, raw string
		last      bool
		want      string
		left      int
	}{
		{"whole lines", "a\n\nb\n", false, "F a|F |F b|", 0},
		{"unended line waits", "a\nbc", false, "F a|", 2},
		{"unended line at the end", "a\nbc", true, "F a|P bc|", 0},
		{"carriage return stays", "a\r\n", false, "F a\r|", 0},
		{"exactly 16 KiB", long + "\n", false, "F " + long + "|", 0},
		{"one byte more", long + "y\n", false, "P " + long + "|F y|", 0},
		{"three parts", long + long + "z\n", false, "P " + long + "|P " + long + "|F z|", 0},
		{"16 KiB and no end yet", long, false, "", maxMessage},
		{"16 KiB, a byte and no end yet", long + "y", false, "P " + long + "|", 1},
	} {
		out, used := AppendEntries(nil, []byte(c.raw), EntryOptions{Stdout, at, c.last, 1 << 20})
		want := ""
		for _, e := range strings.SplitAfter(c.want, "|") {
			if e != "" {
				want += head + strings.TrimSuffix(e, "|") + "\n"
			}
		}
		if string(out) != want || len(c.raw)-used != c.left {
			t.Errorf("%s: got %.200q, left %d", c.name, out, len(c.raw)-used)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("2026-01-02T15:04:05.000000000Z stdout F message"))
	f.Add([]byte("2026-01-02T15:04:05Z stderr P:x"))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, ok := parse(line)
		if ok && !bytes.HasSuffix(line, e.message) {
			t.Errorf("message %q is not the end of %q", e.message, line)
		}
	})
}
