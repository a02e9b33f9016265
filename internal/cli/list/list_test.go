package list

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/printers"
	"podrun.io/podrun/internal/cli/query"
	"podrun.io/podrun/internal/event"
	"podrun.io/podrun/internal/test"
)

// TestWatchedEvents: an event that occurs again is printed again, also if podrun has dropped it meanwhile, so that it is
// counted from one again.
func TestWatchedEvents(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Root: t.TempDir()}
	at := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	write := func() {
		t.Helper()
		at = at.Add(time.Minute)
		text, err := json.Marshal(event.Record{
			Namespace: "default", Name: "web-n", Reason: "BackOff", Message: "again", Count: 1, First: at, Last: at,
		})
		test.Must(t, err)
		test.Must(t, os.MkdirAll(filepath.Dir(dirs.Events()), 0o755))
		test.Must(t, os.WriteFile(dirs.Events()+".new", append(text, '\n'), 0o600))
		test.Must(t, os.Rename(dirs.Events()+".new", dirs.Events()))
	}
	out := &test.Buffer{}
	l := &Lister{
		Streams: cli.Streams{Out: out, ErrOut: out},
		Reader:  &query.Reader{Dirs: dirs, Log: slog.New(slog.DiscardHandler)},
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- l.watchEvents(ctx, query.EventSelection{Namespace: "default"}, printers.NewEvents(out, printers.EventOptions{Watch: true}))
	}()
	for n := range 3 {
		write()
		test.Eventually(t, "the event is printed again", func() bool { return strings.Count(out.String(), "BackOff") == n+1 })
	}
	cancel()
	<-done
}
