package owner

import (
	"log/slog"
	"strings"

	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/sys/watch"
	"podrun.io/podrun/internal/workload/cronjobs"
)

// JobRequests pass requests for a Job from podrun create job to the serve that has the CronJob. A request names the
// CronJob by its UID, which is used once, and the Job, so one that is read again after a crash creates nothing twice.
type JobRequests struct{ files[cronjobs.Request] }

// NewJobRequests returns the requests below the run directory.
func NewJobRequests(dirs layout.Dirs, log *slog.Logger) *JobRequests {
	r := &JobRequests{files[cronjobs.Request]{
		dir: layout.JobRequests(dirs), run: dirs.Run, log: log, what: "a Job",
		name: func(q cronjobs.Request) string { return q.UID + "_" + q.Job }, // neither has an underscore
		parse: func(name string) (cronjobs.Request, bool) {
			uid, job, ok := strings.Cut(name, "_")
			return cronjobs.Request{UID: uid, Job: job}, ok
		},
		Changed: make(chan struct{}), watch: watch.New(log),
	}}
	r.stale = r.isAbandoned
	return r
}
