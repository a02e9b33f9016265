package agent

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podrun.io/podrun/internal/agent/owner"
	"podrun.io/podrun/internal/event"
	"podrun.io/podrun/internal/runtime/fake"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/workload"
	"podrun.io/podrun/internal/workload/cronjobs"
)

// cronText is a CronJob of an image with more fields of its spec, each a line.
func cronText(image string, more ...string) string {
	return "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: c}\nspec:\n  timeZone: UTC\n  " +
		strings.Join(more, "\n  ") + "\n  jobTemplate:\n    spec:\n      template:\n        spec: {restartPolicy: Never, " +
		"containers: [{name: c, image: '" + image + "'}]}\n"
}

// crons waits and compares the times of the CronJob's Jobs, how many are active, and when one was scheduled last.
func (s *served) crons(d time.Duration, want string) {
	s.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	all, err := status.Workloads(s.o.Dirs)
	if err != nil {
		s.t.Fatal(err)
	}
	var got []string
	last := ""
	for _, w := range all {
		switch w.Kind {
		case workload.Job:
			job := w.Job()
			at, err := time.Parse(time.RFC3339, job.Annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"])
			if err != nil {
				s.t.Error(err)
			}
			got = append(got, fmt.Sprintf("%s:%d/%d/%d", at.UTC().Format("15.04"), job.Status.Active, job.Status.Succeeded, job.Status.Failed))
		case workload.CronJob:
			c := w.CronJob()
			last = fmt.Sprintf("%d active", len(c.Status.Active))
			if t := c.Status.LastScheduleTime; t != nil {
				last += " last " + t.UTC().Format("15.04")
			}
		}
	}
	if text := strings.Join(append([]string{last}, got...), " "); text != want {
		s.t.Errorf("%s\nwant %s", text, want)
	}
}

// TestCronJob: each time of the schedule runs, those that were missed once, and no time again, whatever happens to
// podrun and the machine.
func TestCronJob(t *testing.T) {
	rt := fake.New("boot-1")
	rt.AddImage("good:1", fake.Script{Run: time.Minute})
	s := newServed(t, rt)
	s.o.machine.wall = time.Now
	text := cronText("good:1", `schedule: "*/10 * * * *"`, "successfulJobsHistoryLimit: 2")
	s.put(text)
	synctest.Test(t, func(t *testing.T) {
		s.t = t
		s.start() // at 00:00
		s.crons(5*time.Minute, "0 active")
		s.crons(5*time.Minute+30*time.Second, "1 active last 00.10 00.10:1/0/0")
		s.stop()
		s.start()
		s.crons(2*time.Minute, "0 active last 00.10 00.10:0/1/0")
		s.reboot(rt)
		s.crons(8*time.Minute, "1 active last 00.20 00.10:0/1/0 00.20:1/0/0")
		s.crons(3*time.Minute, "0 active last 00.20 00.10:0/1/0 00.20:0/1/0")
		s.stop()
		time.Sleep(3*time.Hour + 2*time.Minute)
		s.start() // at 03:25
		s.crons(10*time.Second, "1 active last 03.20 00.10:0/1/0 00.20:0/1/0 03.20:1/0/0")
		s.crons(2*time.Minute, "0 active last 03.20 00.20:0/1/0 03.20:0/1/0")
		if err := os.Remove(s.file); err != nil {
			t.Error(err)
		}
		s.crons(time.Minute, "")
		if got := existing(t, s.o); got != "" {
			t.Errorf("after the removal: %s", got)
		}
		s.put(text)
		s.crons(time.Minute, "0 active")
		s.stop()
	})
}

// TestCronJobAtBoot: with the annotation, a CronJob runs once in each boot.
func TestCronJobAtBoot(t *testing.T) {
	rt := fake.New("boot-1")
	rt.AddImage("good:1", fake.Script{Run: time.Minute})
	s := newServed(t, rt)
	s.o.machine.wall = time.Now
	s.put(strings.Replace(cronText("good:1", `schedule: "@yearly"`), "{name: c}", "{name: c, annotations: {podrun.io/schedule: boot}}", 1))
	synctest.Test(t, func(t *testing.T) {
		s.t = t
		s.start()
		s.crons(30*time.Second, "1 active last 00.00 00.00:1/0/0")
		s.crons(5*time.Minute, "0 active last 00.00 00.00:0/1/0")
		s.stop()
		s.start()
		s.crons(5*time.Minute, "0 active last 00.00 00.00:0/1/0")
		s.reboot(rt)
		s.crons(30*time.Second, "1 active last 00.10 00.00:0/1/0 00.10:1/0/0")
		s.stop()
	})
}

// TestCronJobAsked: a Job that is asked for runs once, also if podrun ends before it has answered, and what happens is
// events.
func TestCronJobAsked(t *testing.T) {
	rt := fake.New("boot-1")
	rt.AddImage("good:1", fake.Script{Run: time.Minute})
	s := newServed(t, rt)
	s.o.machine.wall = time.Now
	s.put(cronText("good:1", `schedule: "0 0 1 1 *"`, "suspend: true"))
	synctest.Test(t, func(t *testing.T) {
		s.t = t
		s.start()
		s.after(time.Minute, "no job; ")
		all, err := status.Workloads(s.o.Dirs)
		if err != nil || len(all) != 1 {
			t.Fatalf("%v, %v", all, err)
		}
		s.stop()
		requests := owner.NewJobRequests(s.o.Dirs, s.o.Log)
		q := cronjobs.Request{UID: string(all[0].CronJob().UID), Job: "now"}
		for range 2 {
			if err := requests.Post(q); err != nil {
				t.Fatal(err)
			}
			s.start()
			time.Sleep(2 * time.Minute)
			if s.after(0, "0 active 1 succeeded 0 failed SuccessCriteriaMet=CompletionsReached Complete=CompletionsReached; now-0-n*"); requests.Pending(q) {
				t.Error("not answered")
			}
			s.stop()
		}
		records, err := event.Read(s.o.Dirs)
		var text []string
		for _, r := range records {
			if r.Kind == "CronJob" {
				text = append(text, fmt.Sprintf("%s/%s %s x%d", r.Namespace, r.Name, r.Message, r.Count))
			}
		}
		want := "default/c Created job now x1, default/c Saw completed job: now, condition: Complete x1"
		if got := strings.Join(text, ", "); err != nil || got != want {
			t.Errorf("events: %s, %v; want %s", got, err, want)
		}
	})
}
