package record

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/cronjobs"
	"podrun.io/podrun/internal/workload/jobs"
)

// failing is a disk on which the changes of some runs fail, before or after their effect.
type failing struct {
	*checkpoint.Memory
	before, after string
}

func (d *failing) change(name string, do func() error) error {
	if name == d.before {
		return errors.New("no space")
	}
	if err := do(); err != nil {
		return err
	}
	if name == d.after {
		return errors.New("input/output error")
	}
	return nil
}

func (d *failing) WriteRun(name string, data []byte) error {
	return d.change(name, func() error { return d.Memory.WriteRun(name, data) })
}

func (d *failing) RemoveRun(name string) error {
	return d.change(name, func() error { return d.Memory.RemoveRun(name) })
}

// has returns the names of the runs on the disk.
func (d *failing) has(t *testing.T) []string {
	t.Helper()
	texts, err := d.ReadRuns()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(texts))
}

func onFailing(t *testing.T) (*Record, *failing) {
	t.Helper()
	r, d := New(nowhere{}), &failing{Memory: checkpoint.NewMemory(nil)}
	if _, err := r.Recall(checkpoint.NewStoreOn(d, slog.New(slog.DiscardHandler))); err != nil {
		t.Fatal(err)
	}
	return r, d
}

var (
	cron = workload.ID{Kind: workload.CronJob, Key: pod.Key{Namespace: "default", Name: "c"}}
	made = cron.Job("c-1")
	// withJob is a CronJob and its Job.
	withJob = workload.Histories{
		CronJobs: map[workload.ID]*cronjobs.History{cron: {UID: "u", Jobs: []cronjobs.Job{{Name: "c-1"}}}},
		Jobs:     map[workload.ID]*jobs.History{made: {Run: "1", Document: "d"}},
	}
	withoutJob = workload.Histories{CronJobs: map[workload.ID]*cronjobs.History{cron: {UID: "u"}}}
)

// TestRunStaysWithItsCronJob: a Job that the record of a CronJob may still name keeps its run, and nothing is done for
// it. Else it would begin again when the CronJob goes on.
func TestRunStaysWithItsCronJob(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		next          workload.Histories
		before, after string
	}{
		"no CronJob":        {workload.Histories{}, "CronJob_default_c", ""},
		"no CronJob, late":  {workload.Histories{}, "", "CronJob_default_c"},
		"not its Job":       {withoutJob, "CronJob_default_c", ""},
		"not its Job, late": {withoutJob, "", "CronJob_default_c"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, d := onFailing(t)
			r.Save(withJob)
			d.before, d.after = c.before, c.after
			if failed := r.Save(c.next); !failed[cron] || !failed[made] {
				t.Errorf("failed: %v", failed)
			}
			if now := r.Recorded(); now.CronJobs[cron] == nil || now.Jobs[made] == nil ||
				!slices.Contains(d.has(t), "default_c-1") {
				t.Errorf("recorded: %+v; stored: %v", now.Histories, d.has(t))
			}
			d.before, d.after = "", ""
			if failed := r.Save(c.next); len(failed) > 0 || len(r.Recorded().Jobs) > 0 ||
				slices.Contains(d.has(t), "default_c-1") {
				t.Errorf("failed in the end: %v; stored: %v", failed, d.has(t))
			}
		})
	}
}

// TestFailedChangesAreMadeAgain: a change that has failed may have happened or not, so the next one is made whatever
// was recorded before it.
func TestFailedChangesAreMadeAgain(t *testing.T) {
	t.Parallel()
	r, d := onFailing(t)
	d.after = "default_c-1"
	if failed := r.Save(withJob); !failed[made] || !slices.Contains(d.has(t), "default_c-1") {
		t.Errorf("writing late: failed %v, stored %v", failed, d.has(t))
	}
	if failed := r.Save(workload.Histories{}); !failed[made] {
		t.Errorf("removing late: failed %v", failed)
	}
	d.after = ""
	if failed := r.Save(workload.Histories{}); len(failed) > 0 || len(d.has(t)) > 0 {
		t.Errorf("removed: failed %v, stored %v", failed, d.has(t))
	}
	r.Save(withJob)
	d.after = "CronJob_default_c" // which is removed all the same, and wanted again
	r.Save(workload.Histories{})
	d.after = ""
	if failed := r.Save(withJob); len(failed) > 0 || !slices.Contains(d.has(t), "CronJob_default_c") {
		t.Errorf("stored again: failed %v, stored %v", failed, d.has(t))
	}
}
