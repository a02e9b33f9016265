package once

import (
	"errors"
	"strings"
	"testing"

	"podrun.io/podrun/internal/agent/result"
	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/report"
)

// TestUnwrittenReport: a report that cannot be written does not hide how the run ended; it is the error of a run that
// succeeded.
func TestUnwrittenReport(t *testing.T) {
	t.Parallel()
	unwritten := errors.New("no space for the report")
	for name, c := range map[string]struct {
		result result.Result
		code   int
	}{
		"a time-out":   {result.Result{TimedOut: true}, cli.ExitTimeout},
		"an interrupt": {result.Result{Interrupted: true}, cli.ExitInterrupted},
	} {
		var errOut strings.Builder
		r := &run{
			Options: Options{Streams: &cli.Streams{ErrOut: &errOut}, Report: &report.File{}},
			logs:    &report.Logs{},
		}
		var failed *cli.Error
		if err := r.end(c.result, unwritten); !errors.As(err, &failed) || failed.Code != c.code {
			t.Errorf("%s: %v", name, err)
		}
		if got, want := errOut.String(), "warning: no space for the report\n"; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
		if err := r.end(result.Result{}, unwritten); !errors.Is(err, unwritten) {
			t.Errorf("a success: %v", err)
		}
	}
}
