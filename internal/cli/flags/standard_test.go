package flags

import (
	"bytes"
	"encoding/json"
	"log"
	"log/slog"
	"strings"
	"testing"
)

// TestStandardLog: what libraries write to Go's standard log is a value in podrun's log, on one line and of limited
// length, and is there with --log-level debug only.
func TestStandardLog(t *testing.T) {
	flags, before := log.Flags(), log.Writer()
	defer func() {
		log.SetFlags(flags)
		log.SetOutput(before)
	}()
	for level, want := range map[string]bool{"debug": true, "info": false} {
		var out bytes.Buffer
		g := Global{LogLevel: level, LogFormat: "json"}
		RedirectStandardLog(slog.New(g.LogHandler(&out)))
		log.Printf("Unsolicited response received on idle HTTP channel starting with %q; err=<nil>\nlevel=ERROR\x1b[2J%s", "x", strings.Repeat("x", 10000))
		if !want {
			if out.Len() > 0 {
				t.Errorf("at level %s: %s", level, &out)
			}
			continue
		}
		var line struct{ Level, Msg, Text string }
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Errorf("%v: %s", err, &out)
		}
		if line.Level != "DEBUG" || !strings.HasPrefix(line.Text, "Unsolicited response") || len(line.Text) > 512 || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%+v: %s", line, &out)
		}
	}
}
