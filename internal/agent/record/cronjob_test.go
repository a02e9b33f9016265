package record

import (
	"errors"
	"log/slog"
	"os"
	"slices"
	"testing"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/checkpoint/layout"
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
		Jobs:     map[workload.ID]*jobs.History{job: {Run: "1", Document: "d"}},
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

// events records events as text.
type events struct{ all []string }

func (e *events) Record(of pod.Event) { e.all = append(e.all, of.Kind+" "+of.Key.Name+": "+of.Message) }

// TestRequests: a request for a Job is answered once its CronJob has recorded the Job, and is not made again. What a
// CronJob has done is an event once it is recorded.
func TestRequests(t *testing.T) {
	t.Parallel()
	dirs := layout.Dirs{Run: t.TempDir()}
	if err := os.Mkdir(layout.JobRequests(dirs), 0o700); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	requests, heard := owner.NewJobRequests(dirs, log), &events{}
	d := &disk{Memory: checkpoint.NewMemory(nil)}
	r := New(nowhere{})
	r.Answer(requests, nil, heard)
	if _, err := r.Recall(checkpoint.NewStoreOn(d, log)); err != nil {
		t.Fatal(err)
	}
	q := cronjobs.Request{UID: "u", Job: "now"}
	if err := requests.Post(q); err != nil {
		t.Fatal(err)
	}
	id := workload.ID{Kind: workload.CronJob, Key: pod.Key{Namespace: "default", Name: "c"}}
	save := func(h *cronjobs.History) {
		r.Save(workload.Histories{CronJobs: map[workload.ID]*cronjobs.History{id: h}})
	}
	with := &cronjobs.History{UID: "u", Jobs: []cronjobs.Job{{Name: "now", Manual: true}}}
	save(with) // which has not seen the request
	if !requests.Pending(q) {
		t.Error("answered before it was read")
	}
	for _, h := range []*cronjobs.History{{UID: "v", Jobs: with.Jobs}, {UID: "u"}} { // another CronJob, no Job
		if got := r.Recorded().Requests; !slices.Equal(got, []cronjobs.Request{q}) {
			t.Fatalf("requests: %v", got)
		}
		if save(h); !requests.Pending(q) {
			t.Errorf("%+v: answered", h)
		}
	}
	r.Recorded()
	d.broken, heard.all = true, nil
	if save(with); !requests.Pending(q) || len(heard.all) > 0 {
		t.Errorf("answered, or events %q, though the Job is not recorded", heard.all)
	}
	d.broken = false
	if save(with); requests.Pending(q) || !slices.Equal(heard.all, []string{"CronJob c: Created job now"}) {
		t.Errorf("not answered, or events %q", heard.all)
	}
	if err := requests.Post(q); err != nil { // as if it could not be removed
		t.Fatal(err)
	}
	if got := r.Recorded().Requests; len(got) > 0 {
		t.Errorf("made again: %v", got)
	}
}
