package record

import (
	"log/slog"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/jobs"
)

// TestDamagedRecords: what is stored and makes no sense is as what cannot be read: nothing is done.
func TestDamagedRecords(t *testing.T) {
	t.Parallel()
	for name, history := range map[string]string{
		"Pod_default_w":        `{"good":{"id":"x"}}`,
		"Pod_default_v":        `{"good":{"id":"x","template":{"spec":{}}}}`,
		"Deployment_default_w": `null`,
		"CronJob_default_w":    `null`,
		"CronJob_default_v":    `{"uid":"u","jobs":[{"name":"v-1","template":"t"}]}`,
		"default_w":            `null`,
		"default_v":            `{"run":"1","document":"d","status":{"completedIndexes":"0-2147483646"}}`,
		"default_u":            `{"run":"1","document":"d","created":1,"tries":[{}]}`,
	} {
		d := checkpoint.NewMemory(nil)
		kind, rest := "Job", name
		for _, k := range []string{"Pod", "Deployment", "CronJob"} {
			if len(name) > len(k) && name[:len(k)] == k {
				kind, rest = k, name[len(k)+1:]
			}
		}
		text := `{"version":1,"namespace":"default","name":"` + rest[len("default_"):] + `","history":` + history
		if kind != "Job" {
			text += `,"kind":"` + kind + `"`
		}
		if err := d.WriteRun(name, []byte(text+"}")); err != nil {
			t.Fatal(err)
		}
		r := New(nowhere{})
		if _, err := r.Recall(checkpoint.NewStoreOn(d, slog.New(slog.DiscardHandler))); err != nil {
			t.Fatal(err)
		}
		id := workload.ID{Kind: workload.Kind(kind), Key: pod.Key{Namespace: "default", Name: rest[len("default_"):]}}
		got := r.Recorded()
		if !got.Frozen[id] || len(got.Jobs)+len(got.CronJobs)+len(got.Revisions) > 0 {
			t.Errorf("%s with %s: frozen %v, %+v", name, history, got.Frozen, got.Histories)
		}
	}
}

// TestClockStep: when the clock is set, the times of the runs of Jobs are moved, and stored, once.
func TestClockStep(t *testing.T) {
	t.Parallel()
	d := checkpoint.NewMemory(nil)
	store := checkpoint.NewStoreOn(d, slog.New(slog.DiscardHandler))
	r := New(nowhere{})
	if _, err := r.Recall(store); err != nil {
		t.Fatal(err)
	}
	boot := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	now, by := boot.Add(time.Minute), time.Duration(0)
	r.wall = func() time.Time { return now }
	r.steps = func() (time.Duration, time.Time) {
		step := by
		by = 0
		return step, boot
	}
	id := workload.ID{Kind: workload.Job, Key: pod.Key{Namespace: "default", Name: "j"}}
	h := &jobs.History{Run: "1", Document: "d", Began: now}
	h.Status.StartTime = &metav1.Time{Time: now}
	r.Save(workload.Histories{Jobs: map[workload.ID]*jobs.History{id: h}})
	now = now.Add(time.Minute)
	by = 56 * 365 * 24 * time.Hour
	now = now.Add(by)
	want := now.Add(-time.Minute)
	for range 2 {
		if got := r.Recorded().Jobs[id]; !got.Began.Equal(want) || !got.Status.StartTime.Time.Equal(want) {
			t.Errorf("began %s, started %s, want %s", got.Began, got.Status.StartTime, want)
		}
	}
	r.Save(workload.Histories{Jobs: r.Recorded().Jobs}) // nothing else is decided
	again := New(nowhere{})
	if _, err := again.Recall(store); err != nil {
		t.Fatal(err)
	}
	if got := again.Recorded().Jobs[id]; !got.Began.Equal(want) {
		t.Errorf("stored: began %s, want %s", got.Began, want)
	}
}
