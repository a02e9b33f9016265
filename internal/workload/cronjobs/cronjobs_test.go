package cronjobs

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"podrun.io/podrun/internal/workload/jobs"
)

// machine decides about one CronJob again and again, as serve does.
type machine struct {
	t       *testing.T
	in      Input
	next    time.Time
	events  []string
	changed int
}

func newMachine(t *testing.T, schedule string, edit ...func(*batchv1.CronJobSpec)) *machine {
	c := &batchv1.CronJob{}
	c.Name = "c"
	c.Spec = batchv1.CronJobSpec{
		Schedule: schedule, TimeZone: ptr.To("UTC"), ConcurrencyPolicy: batchv1.AllowConcurrent, Suspend: ptr.To(false),
		SuccessfulJobsHistoryLimit: ptr.To[int32](3), FailedJobsHistoryLimit: ptr.To[int32](1),
	}
	for _, e := range edit {
		e(&c.Spec)
	}
	m := &machine{t: t, in: Input{
		CronJob: c, Template: json.RawMessage(`{}`), Digest: "t", Boot: "1", Jobs: map[string]*jobs.History{},
		Foreign: func(string) bool { return false }, Trust: Trust{Synchronized: true},
	}}
	m.clock("10:00:30")
	return m
}

// clock sets the clock. A time alone is one of 1 March 2026.
func (m *machine) clock(text string) {
	m.t.Helper()
	if !strings.Contains(text, "-") {
		text = "2026-03-01 " + text
	}
	at, err := time.Parse(time.DateTime, text)
	if err != nil {
		m.t.Fatal(err)
	}
	m.in.Now = at
}

// decide decides once, as if podrun had started again just before.
func (m *machine) decide() {
	m.t.Helper()
	plan := Decide(m.in)
	for _, e := range Events(m.in.History, plan.History) {
		m.events = append(m.events, e.Reason)
	}
	if !reflect.DeepEqual(m.in.History, plan.History) {
		m.changed++
	}
	text, err := json.Marshal(plan.History)
	if err != nil {
		m.t.Fatal(err)
	}
	m.in.History = &History{}
	if err := json.Unmarshal(text, m.in.History); err != nil {
		m.t.Fatal(err)
	}
	if !reflect.DeepEqual(m.in.History, plan.History) {
		m.t.Errorf("read back: %+v\nwritten: %+v", m.in.History, plan.History)
	}
	m.in.Recorded = m.in.History.Clock
	m.next = plan.Next
}

// finish ends a Job.
func (m *machine) finish(name string, how batchv1.JobConditionType) {
	h := &jobs.History{}
	h.Status.Conditions = []batchv1.JobCondition{{Type: how, Status: v1.ConditionTrue}}
	if how == batchv1.JobComplete {
		h.Status.CompletionTime = &metav1.Time{Time: m.in.Now}
	}
	m.in.Jobs[name] = h
}

// jobs returns the times of the Jobs, with their outcomes.
func (m *machine) jobs() string {
	var all []string
	for _, j := range m.in.History.Jobs {
		text := j.Time.Format("15:04")
		if j.Manual {
			text = j.Name
		} else if want := fmt.Sprintf("c-%d", j.Time.Unix()/60); j.Name != want {
			m.t.Errorf("%s is named %s, want %s", text, j.Name, want)
		}
		all = append(all, strings.TrimSpace(text+" "+string(j.Outcome)))
	}
	return strings.Join(all, ", ")
}

// at sets the clock, decides, and compares the Jobs and the events since the last time.
func (m *machine) at(clock, want string, events ...string) {
	m.t.Helper()
	m.clock(clock)
	m.decide()
	if got := m.jobs(); got != want {
		m.t.Errorf("at %s: %q, want %q", clock, got, want)
	}
	if got := strings.Join(m.events, " "); got != strings.Join(events, " ") {
		m.t.Errorf("at %s: events %q, want %q", clock, got, strings.Join(events, " "))
	}
	m.events = nil
}

// wakes compares when to decide again.
func (m *machine) wakes(want string) {
	m.t.Helper()
	got := ""
	if !m.next.IsZero() {
		got = m.next.UTC().Format("15:04:05")
	}
	if got != want {
		m.t.Errorf("next %q, want %q", got, want)
	}
}

const created = "SuccessfulCreate"

func TestSchedule(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "*/5 * * * *")
	m.at("10:00:30", "")
	m.wakes("10:05:00")
	m.at("10:04:59", "")
	m.at("10:05:00", "10:05", created)
	m.wakes("10:10:00")
	changed := m.changed
	m.at("10:05:00", "10:05")
	m.at("10:09:59", "10:05")
	if m.changed != changed {
		t.Error("a history that says the same is recorded again")
	}
	m.at("10:10:01", "10:05, 10:10", created)
	m.finish("c-29539325", batchv1.JobComplete)
	m.at("10:11:00", "10:05 Complete, 10:10", "SawCompletedJob")
	if got := m.in.History.LastSuccessful.Format("15:04"); got != "10:10" {
		t.Errorf("last success at %s", got)
	}
	// An edit of the template is for later Jobs.
	m.in.Digest, m.in.Template = "u", json.RawMessage(`{"edited":true}`)
	m.at("10:15:00", "10:05 Complete, 10:10, 10:15", created)
	if h := m.in.History; h.Jobs[0].Template != "t" || h.Jobs[2].Template != "u" || len(h.Templates) != 2 {
		t.Errorf("templates: %+v", h)
	}
}

// TestMissed: after time off the newest time is started, once, if it is not too late.
func TestMissed(t *testing.T) {
	t.Parallel()
	deadline := func(s int64) func(*batchv1.CronJobSpec) {
		return func(c *batchv1.CronJobSpec) { c.StartingDeadlineSeconds = &s }
	}
	m := newMachine(t, "*/5 * * * *")
	m.at("10:00:30", "")
	m.at("12:07:00", "12:05", created)
	m.at("12:07:01", "12:05")

	m = newMachine(t, "*/5 * * * *", deadline(120))
	m.at("10:00:30", "")
	m.at("12:07:00", "12:05", created)
	m = newMachine(t, "*/5 * * * *", deadline(60))
	m.at("10:00:30", "")
	m.at("12:07:00", "", "MissSchedule")
	m.at("12:08:00", "")
	m.at("12:10:10", "12:10", created)

	m = newMachine(t, "@every 1h", deadline(60)) // which Kubernetes would never start
	m.at("10:00:30", "")
	m.at("11:00:30", "11:00", created)
	m.at("12:00:30", "11:00, 12:00", created)

	// A jump of many years is one run.
	m = newMachine(t, "* * * * *")
	m.at("2026-03-01 10:00:30", "")
	m.at("2126-03-01 10:00:30", "10:00", created, "TooManyMissedTimes")
	m.at("2126-03-01 10:00:31", "10:00")
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	policy := func(p batchv1.ConcurrencyPolicy) func(*batchv1.CronJobSpec) {
		return func(c *batchv1.CronJobSpec) { c.ConcurrencyPolicy = p }
	}
	m := newMachine(t, "*/5 * * * *", policy(batchv1.ForbidConcurrent))
	m.at("10:00:30", "")
	m.at("10:05:00", "10:05", created)
	m.at("10:10:00", "10:05", "JobAlreadyActive")
	m.at("10:11:00", "10:05")
	m.finish("c-29539325", batchv1.JobFailed)
	m.at("10:12:00", "10:05 Failed, 10:10", "SawCompletedJob", created)

	m = newMachine(t, "*/5 * * * *", policy(batchv1.ReplaceConcurrent))
	m.at("10:00:30", "")
	m.at("10:05:00", "10:05", created)
	m.at("10:10:00", "10:10", created, "SuccessfulDelete")
	m.finish("c-29539330", batchv1.JobComplete)
	m.at("10:15:00", "10:10 Complete, 10:15", "SawCompletedJob", created)

	m = newMachine(t, "* * * * *")
	m.at("10:00:30", "")
	for range MaxJobs + 5 {
		m.in.Now = m.in.Now.Add(time.Minute)
		m.decide()
	}
	if n := len(m.in.History.Active()); n != MaxJobs || m.in.History.Problem.Reason != "FailedCreate" {
		t.Errorf("%d active, problem %v", n, m.in.History.Problem)
	}
}

// TestPodsOfActiveJobs: Jobs of many pods each are fewer, so that a CronJob has no more pods than a workload may have.
func TestPodsOfActiveJobs(t *testing.T) {
	t.Parallel()
	for parallelism, want := range map[int32]int{0: 8, 300: 3, 1000: 1, 5000: 1} {
		m := newMachine(t, "* * * * *", func(s *batchv1.CronJobSpec) { s.JobTemplate.Spec.Parallelism = ptr.To(parallelism) })
		m.at("10:00:30", "")
		for range 8 {
			m.in.Now = m.in.Now.Add(time.Minute)
			m.decide()
		}
		if n := len(m.in.History.Active()); n != want || want < 8 && !strings.Contains(m.in.History.Problem.Message, fmt.Sprintf("%d are active", want)) {
			t.Errorf("parallelism %d: %d active, problem %v", parallelism, n, m.in.History.Problem)
		}
	}
}

// TestPodsOfOthers: the CronJobs of a manifest together have no more pods than a workload may have, but for one Job each.
func TestPodsOfOthers(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "* * * * *", func(s *batchv1.CronJobSpec) { s.JobTemplate.Spec.Parallelism = ptr.To[int32](10) })
	m.at("10:00:30", "")
	m.in.Busy = 980
	m.at("10:01:00", "10:01", created)
	m.at("10:02:00", "10:01, 10:02", created)
	m.at("10:03:00", "10:01, 10:02", "FailedCreate")
	m.in.Busy = 5000
	m.finish("c-29539321", batchv1.JobComplete)
	m.finish("c-29539322", batchv1.JobComplete)
	m.decide()
	m.decide() // it is seen that they have finished
	if got := m.jobs(); got != "10:01 Complete, 10:02 Complete, 10:03" {
		t.Errorf("%q", got)
	}
}

// TestLargeTemplates: what Jobs were made from is recorded with each of them, so that it is bounded.
func TestLargeTemplates(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "* * * * *", func(s *batchv1.CronJobSpec) { s.SuccessfulJobsHistoryLimit = ptr.To[int32](100) })
	m.at("10:00:30", "")
	edit := func(n int) {
		m.in.Digest = fmt.Sprint(n)
		m.in.Template = json.RawMessage(`"` + strings.Repeat("x", maxTemplates/4) + `"`)
		m.in.Now = m.in.Now.Add(time.Minute)
		m.decide()
	}
	for n := range 8 {
		edit(n)
	}
	if got := len(m.in.History.Active()); got != 3 || !strings.Contains(m.in.History.Problem.Message, "templates of 4 MiB") {
		t.Errorf("%d active, problem %v", got, m.in.History.Problem)
	}
	for n := range 8 {
		for _, j := range m.in.History.Active() {
			m.finish(j.Name, batchv1.JobComplete)
		}
		m.decide()
		edit(10 + n)
	}
	if n := m.in.History.size(); n > maxTemplates+maxTemplates/4+2 || len(m.in.History.Active()) != 1 {
		t.Errorf("%d bytes of templates, jobs %s", n, m.jobs())
	}
}

func TestHistoryLimits(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "* * * * *")
	m.at("10:00:30", "")
	for i := range 6 {
		m.in.Now = m.in.Now.Add(time.Minute)
		m.decide()
		how := batchv1.JobComplete
		if i%2 == 1 {
			how = batchv1.JobFailed
		}
		m.finish(m.in.History.Jobs[len(m.in.History.Jobs)-1].Name, how)
	}
	m.events = nil
	m.at("10:06:40", "10:01 Complete, 10:03 Complete, 10:05 Complete, 10:06 Failed", "SawCompletedJob", "SuccessfulDelete")
	m.in.CronJob.Spec.SuccessfulJobsHistoryLimit, m.in.CronJob.Spec.FailedJobsHistoryLimit = ptr.To[int32](0), ptr.To[int32](0)
	m.at("10:06:50", "", "SuccessfulDelete", "SuccessfulDelete", "SuccessfulDelete", "SuccessfulDelete")
	if m.in.History.Templates != nil {
		t.Error("templates that nothing needs")
	}
	m.at("10:06:59", "")

	// What ttlSecondsAfterFinished removes is not listed either.
	m = newMachine(t, "* * * * *")
	m.at("10:00:30", "")
	m.at("10:01:00", "10:01", created)
	m.finish("c-29539321", batchv1.JobComplete)
	m.in.Jobs["c-29539321"].Expired = true
	m.at("10:01:30", "", "SuccessfulDelete")
	if m.in.History.LastSuccessful.IsZero() {
		t.Error("the success is not recorded")
	}
}

func TestSuspend(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "*/5 * * * *")
	m.at("10:00:30", "")
	m.in.CronJob.Spec.Suspend = ptr.To(true)
	m.at("10:06:00", "")
	m.wakes("")
	m.in.Requests = []Request{{UID: m.in.History.UID, Job: "now"}}
	m.at("10:06:30", "now", created)
	m.in.CronJob.Spec.Suspend = ptr.To(false)
	m.at("10:07:00", "now, 10:05", created)
}

// TestRequests: a Job that is asked for is created once, by the CronJob that was asked.
func TestRequests(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "*/5 * * * *", func(c *batchv1.CronJobSpec) { c.ConcurrencyPolicy = batchv1.ForbidConcurrent })
	m.at("10:00:30", "")
	m.in.Requests = []Request{{UID: m.in.History.UID, Job: "now"}, {UID: "other", Job: "stranger"}}
	m.at("10:01:00", "now", created)
	m.at("10:01:10", "now")
	m.in.Requests = nil
	m.at("10:05:00", "now, 10:05", created) // it does not count for Forbid, as in Kubernetes
	m.in.Foreign = func(name string) bool { return name == "taken" }
	m.in.Requests = []Request{{UID: m.in.History.UID, Job: "taken"}}
	m.at("10:06:00", "now, 10:05")
}

// TestForeign: a Job of a manifest that has the name is not touched, and the time does not start.
func TestForeign(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "*/5 * * * *")
	m.at("10:00:30", "")
	m.in.Foreign = func(name string) bool { return name == "c-29539325" }
	m.at("10:05:00", "", "FailedCreate")
	m.in.Foreign = func(string) bool { return false }
	m.at("10:06:00", "")
	m.at("10:10:00", "10:10", created)
}

func TestAtBoot(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "@yearly", func(c *batchv1.CronJobSpec) { c.ConcurrencyPolicy = batchv1.ForbidConcurrent })
	m.in.AtBoot, m.in.Synchronized = true, false
	m.at("1970-01-01 00:00:10", "00:00", created) // it needs no clock
	m.at("10:00:00", "00:00")
	m.wakes("")
	m.in.Boot = "2"
	m.at("1970-01-01 00:00:10", "00:00", "JobAlreadyActive") // the Job of the last boot goes on
	m.finish("c-0", batchv1.JobComplete)
	m.clock("1970-01-01 00:00:20")
	m.decide()
	m.clock("1970-01-01 00:00:30")
	m.decide()
	if h := m.in.History; len(h.Jobs) != 2 || h.Jobs[1].Name != "c-1" || h.Boot != "2" {
		t.Errorf("%+v", h)
	}
}

// TestClock: nothing is scheduled by a clock that cannot be right, and no time again after the clock was set back.
func TestClock(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "*/5 * * * *")
	m.in.Synchronized = false
	m.at("1970-01-01 00:05:00", "", "ClockNotSynchronized")
	m.wakes("00:05:10")
	m.at("1970-01-01 00:10:00", "")
	m.at("10:00:30", "") // later than what is recorded: right, as far as is known
	m.at("10:05:00", "10:05", created)
	m.at("09:00:00", "10:05", "ClockNotSynchronized")
	m.at("10:05:30", "10:05")
	m.at("10:10:00", "10:05, 10:10", created)

	m.in.Synchronized = true // from here on the clock is right by definition
	m.at("10:05:00", "10:05, 10:10")
	m.at("10:10:00", "10:05, 10:10")
	m.at("10:15:00", "10:05, 10:10, 10:15", created)
	m.at("2038-01-19 03:15:00", "10:05, 10:10, 10:15, 03:15", created, "TooManyMissedTimes")
	m.at("10:20:00", "10:05, 10:10, 10:15, 03:15, 10:20", created) // 2038 does not last

	// The first time that is seen was wrong.
	m = newMachine(t, "*/5 * * * *")
	m.at("2038-01-19 03:15:30", "")
	m.at("10:01:00", "")
	m.at("10:05:00", "10:05", created)
}

// TestFarAhead: a clock that was years ahead for long, and comes back, stops nothing, and starts nothing again.
func TestFarAhead(t *testing.T) {
	t.Parallel()
	for _, far := range []string{"2027-01-01 00:00:00", "2038-01-19 03:15:00"} {
		m := newMachine(t, "*/5 * * * *")
		m.at("10:00:30", "")
		m.at("10:05:00", "10:05", created)
		m.clock(far)
		for i := range 500 {
			m.in.Now = m.in.Now.Add(time.Duration(5+5*(i%3)) * time.Minute) // with gaps
			m.finish(m.in.History.Jobs[len(m.in.History.Jobs)-1].Name, batchv1.JobComplete)
			m.decide()
		}
		if n := len(m.in.History.Started); n > maxSpans {
			t.Errorf("%d spans are recorded", n)
		}
		m.in.CronJob.Spec.SuccessfulJobsHistoryLimit = ptr.To[int32](0)
		m.finish(m.in.History.Jobs[len(m.in.History.Jobs)-1].Name, batchv1.JobComplete)
		m.clock("10:07:00")
		m.in.Synchronized, m.in.Set = false, far[3] == '7' // by hand, or by a source of time
		if !m.in.Set {
			m.in.Synchronized = true
		}
		m.decide()
		m.events = nil
		m.at("10:08:00", "")
		m.at("10:10:00", "10:10", created)
		m.in.Synchronized, m.in.Set = false, false // podrun starts again
		m.at("10:15:00", "10:10, 10:15", created)
	}
}

func TestSpans(t *testing.T) {
	t.Parallel()
	var spans []Span
	for _, n := range []int64{5, 10, 15, 30, 35, 100, 101, 15, 12} {
		spans = add(spans, n, n-5)
	}
	if want := []Span{{5, 15}, {30, 35}, {100, 101}}; !reflect.DeepEqual(spans, want) {
		t.Errorf("%v, want %v", spans, want)
	}
	for i := range int64(2 * maxSpans) {
		spans = add(spans, 1_000_000+i*i*10, 0)
	}
	if len(spans) != maxSpans || has(spans, 500_000) || !has(spans, 1_000_000) {
		t.Errorf("%v", spans)
	}
}

// TestNever: a schedule that has no times is no endless loop.
func TestNever(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "0 0 30 2 *")
	m.at("10:00:30", "", "InvalidSchedule")
	m.wakes("")
	m.at("2126-03-01 10:00:30", "")
}

// TestAtMostOnce: whatever the clock does, and whenever podrun starts again, no time is started twice.
func TestAtMostOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(36) {
		r := rand.New(rand.NewPCG(seed, 1))
		policies := []batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent}
		schedules := []string{"* * * * *", "*/5 * * * *", "@every 90s", "@every 20s"}
		m := newMachine(t, schedules[seed%4], func(c *batchv1.CronJobSpec) {
			c.ConcurrencyPolicy = policies[seed%3]
			c.SuccessfulJobsHistoryLimit = ptr.To(int32(seed % 2))
		})
		seen, total := map[string]bool{}, 0
		for range 1000 {
			jump := time.Duration(r.IntN(60)) * time.Second
			switch r.IntN(30) {
			case 0:
				jump = -time.Duration(r.IntN(90)) * time.Minute
			case 1:
				jump = time.Duration(r.IntN(5)) * time.Hour
			case 2:
				jump = time.Duration(r.IntN(30)-15) * 24 * time.Hour
			}
			m.in.Now, m.in.Synchronized = m.in.Now.Add(jump), r.IntN(3) > 0
			before := m.in.History
			m.decide()
			m.events = nil
			now := map[string]bool{}
			if before != nil {
				for _, j := range before.Jobs {
					now[j.Name] = true
				}
			}
			for _, j := range m.in.History.Jobs {
				if !now[j.Name] && seen[j.Name] {
					t.Fatalf("seed %d: %s starts again at %s", seed, j.Name, m.in.Now)
				}
				if !now[j.Name] {
					seen[j.Name], total = true, total+1
				}
				if r.IntN(4) == 0 {
					m.finish(j.Name, batchv1.JobComplete)
				}
			}
		}
		if total < 20 {
			t.Errorf("seed %d: only %d were started", seed, total)
		}
	}
}
