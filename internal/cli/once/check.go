package once

import (
	"fmt"
	"os"
	"slices"

	"podrun.io/podrun/internal/cli"
	"podrun.io/podrun/internal/cli/report"
)

// ReportFile is the file of the flag --report.
type ReportFile = report.File

// Check returns an error for values that cannot be used, before anything runs. It sets o.Groups by the flag
// --log-groups, and o.Logs if it is "".
func (o *Options) Check(logGroups string) error {
	if o.Logs == "" {
		o.Logs = DefaultLogs(cli.TerminalOf(o.Streams.Out) != nil, os.Getenv("CI"))
	}
	switch {
	case !slices.Contains([]string{"all", "failed", "none", "stream"}, o.Logs):
		return fmt.Errorf("--logs %q: must be all, failed, none or stream", o.Logs)
	case o.Timeout < 0:
		return fmt.Errorf("--timeout %s: must not be negative", o.Timeout)
	case o.Stable < 0:
		return fmt.Errorf("--service-stable %s: must not be negative", o.Stable)
	case o.PullTimeout <= 0:
		return fmt.Errorf("--pull-timeout %s: must be more than 0", o.PullTimeout)
	case o.CleanupTimeout <= 0:
		return fmt.Errorf("--cleanup-timeout %s: must be more than 0", o.CleanupTimeout)
	}
	var err error
	if o.Groups, err = report.NewGroups(logGroups, os.Getenv); err != nil {
		return err
	}
	if err := o.Report.CheckPath(); err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	return checkTimeline(o.Timeline)
}
