package flags

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// TestLongValuesAreCut: no text from elsewhere makes a line of the log long.
func TestLongValuesAreCut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\xff\n", 1<<20)
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log := slog.New((&Global{LogLevel: "info", LogFormat: format}).LogHandler(&out))
		log.With("with", long).WithGroup("g").Warn("short", "text", long, "err", errors.New(long), "list", []string{long}, "n", 7)
		if n := out.Len(); n > 4*6*mostValue || strings.Count(out.String(), "…") != 4 || !strings.Contains(out.String(), "7") {
			t.Errorf("%s: %d bytes: %.100s", format, n, out.String())
		}
		out.Reset()
		log.Error(long)
		if n := out.Len(); n > 7*mostValue || !strings.Contains(out.String(), "…") {
			t.Errorf("%s: a message of %d bytes", format, n)
		}
		out.Reset()
		log.Info("short", "err", errors.New("is whole"), "nil", nil)
		if !strings.Contains(out.String(), "is whole") || strings.Contains(out.String(), "…") {
			t.Errorf("%s: %s", format, out.String())
		}
	}
}
