package flags

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// over is a writer around another one, as the progress of once is.
type over struct{ io.Writer }

func (o over) Underlying() io.Writer { return o.Writer }

// journal returns a file and the value of JOURNAL_STREAM that names it.
func journal(t *testing.T) (f *os.File, stream string) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "journal"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	return f, fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// TestLogInTheJournal: lines have a priority and no time where the journal reads them, and only there.
func TestLogInTheJournal(t *testing.T) {
	f, stream := journal(t)
	t.Setenv("JOURNAL_STREAM", stream)
	for _, format := range []string{"text", "json"} {
		for name, w := range map[string]io.Writer{"the journal": f, "progress": over{over{f}}} {
			if err := f.Truncate(0); err != nil {
				t.Fatal(err)
			}
			log := slog.New((&Global{LogLevel: "debug", LogFormat: format}).LogHandler(w)).With("pod", "a").WithGroup("g")
			log.Debug("of level 7", "of", "mine")
			log.Info("of level 6")
			log.Warn("of level 4")
			log.Error("of level 3", "err", "two\nlines")
			text, err := os.ReadFile(f.Name())
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimLeft(strings.TrimSuffix(string(text), "\n"), "\x00"), "\n")
			if len(lines) != 4 || !strings.Contains(lines[0], "mine") {
				t.Fatalf("%s, %s: %q", format, name, lines)
			}
			for i, level := range []string{"7", "6", "4", "3"} {
				line, prefixed := strings.CutPrefix(lines[i], "<"+level+">")
				if !prefixed || !strings.Contains(line, "of level "+level) || strings.Contains(line, "2026-") ||
					strings.HasPrefix(line, "time=") || strings.Contains(line, `{"time":`) {
					t.Errorf("%s, %s: %q", format, name, lines[i])
				}
				if format == "json" && !json.Valid([]byte(line)) {
					t.Errorf("%q", line)
				}
			}
		}
	}
	if log := (&Global{LogLevel: "warn", LogFormat: "text"}).LogHandler(f); log.Enabled(context.Background(), slog.LevelInfo) {
		t.Error("the level is ignored")
	}
	other, _ := journal(t)
	for name, w := range map[string]io.Writer{"a file": other, "memory": &bytes.Buffer{}} {
		slog.New((&Global{LogLevel: "info", LogFormat: "text"}).LogHandler(w)).Info("message")
		var text []byte
		if w == other {
			text, _ = os.ReadFile(other.Name())
		} else {
			text = w.(*bytes.Buffer).Bytes()
		}
		if !bytes.HasPrefix(text, []byte("time=")) {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// TestJournalLinesAreWhole: many at once are not mixed.
func TestJournalLinesAreWhole(t *testing.T) {
	f, stream := journal(t)
	t.Setenv("JOURNAL_STREAM", stream)
	log := slog.New((&Global{LogLevel: "info", LogFormat: "text"}).LogHandler(f))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				log.Info("message")
				log.Error("message")
			}
		})
	}
	all.Wait()
	text, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for _, line := range lines {
		if line != "<6>level=INFO msg=message" && line != "<3>level=ERROR msg=message" {
			t.Fatalf("%q", line)
		}
	}
	if len(lines) != 1600 {
		t.Errorf("%d lines", len(lines))
	}
}
