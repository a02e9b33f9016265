package record

import (
	"errors"
	"log/slog"
	"slices"
	"testing"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/cronjobs"
	"podrun.io/podrun/internal/workload/jobs"
)

// disk records in which order runs are written.
type disk struct {
	*checkpoint.Memory
	written []string
	broken  bool
}

func (d *disk) WriteRun(name string, data []byte) error {
	d.written = append(d.written, name)
	if d.broken {
		return errors.New("no space")
	}
	return d.Memory.WriteRun(name, data)
}

// TestCronJobs: what a CronJob starts is on disk before the run of its Job is, and is read again. A Job and a CronJob
// may have one name.
func TestCronJobs(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	d := &disk{Memory: checkpoint.NewMemory(nil)}
	open := func() *Record {
		t.Helper()
		r := New(nowhere{})
		if _, err := r.Recall(checkpoint.NewStoreOn(d, log)); err != nil {
			t.Fatal(err)
		}
		return r
	}
	key := pod.Key{Namespace: "default", Name: "c"}
	job, cron := workload.ID{Kind: workload.Job, Key: key}, workload.ID{Kind: workload.CronJob, Key: key}
	all := workload.Histories{
		Jobs:     map[workload.ID]*jobs.History{job: {Run: "1"}},
		CronJobs: map[workload.ID]*cronjobs.History{cron: {UID: "u"}},
	}
	d.broken = true
	if failed := open().Save(all); !failed[job] || !failed[cron] {
		t.Errorf("failed: %v", failed)
	}
	d.broken, d.written = false, nil
	if failed := open().Save(all); len(failed) > 0 {
		t.Errorf("failed: %v", failed)
	}
	if want := []string{"CronJob_default_c", "default_c"}; !slices.Equal(d.written, want) {
		t.Errorf("written: %v, want %v", d.written, want)
	}
	r := open()
	if got := r.Recorded(); got.Jobs[job] == nil || got.CronJobs[cron] == nil || got.CronJobs[cron].UID != "u" {
		t.Errorf("read: %+v", got.Histories)
	}
	r.Save(workload.Histories{Jobs: all.Jobs})
	if got := open().Recorded(); got.Jobs[job] == nil || len(got.CronJobs) != 0 {
		t.Errorf("after the removal: %+v", got.Histories)
	}
}
