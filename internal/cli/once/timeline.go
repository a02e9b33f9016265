package once

import (
	"fmt"
	"time"

	"podrun.io/podrun/internal/cli/report"
	"podrun.io/podrun/internal/timeline"
)

// checkTimeline returns an error if path cannot be the file for the timeline of a run. "" is no file.
func checkTimeline(path string) error {
	if path == "" {
		return nil
	}
	err := timeline.CheckFile(path)
	if err == nil {
		err = report.Writable(path)
	}
	if err != nil {
		return fmt.Errorf("--timeline: %w", err)
	}
	return nil
}

// writeTimeline writes what the run has spent its time on until its results were known.
func (r *run) writeTimeline() error {
	if r.spans == nil {
		return nil
	}
	now := time.Now()
	all := r.spans.Spans(func(timeline.Span) bool { return true })
	timeline.Path(all, now)
	text, err := timeline.File(r.Timeline, all, now)
	if err == nil {
		err = report.ReplaceFile(r.Timeline, text)
	}
	if err != nil {
		return fmt.Errorf("writing the timeline: %w", err)
	}
	return nil
}
