// Package cronjobs decides about the runs of CronJobs: which Jobs a CronJob should have now, what is recorded of it,
// and when to decide again. It follows Kubernetes' CronJob controller
// (pkg/controller/cronjob/cronjob_controllerv2.go), with these differences: a time of a schedule runs at most once,
// also where the clock was set back; nothing is scheduled by a clock that cannot be right; and
// startingDeadlineSeconds does not move the times of @every.
//
// It is pure: (CronJob, history, requests, Jobs, now) -> history, which has the Jobs that should be. The caller records
// the history before it acts on a Job.
//
// Begin reading at Decide.
package cronjobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"podrun.io/podrun/internal/workload/jobs"
	"podrun.io/podrun/internal/workload/schedule"
)

// History is what is recorded of a CronJob.
type History struct {
	// UID identifies the CronJob. It is another one after the document was removed and put back.
	UID string `json:"uid"`
	// Created is since when its times count: since it was seen first by a clock that could be right.
	Created time.Time `json:"created,omitzero"`
	// LastSchedule is the time of the schedule that was started last, LastSuccessful when a Job was complete last.
	LastSchedule   time.Time `json:"lastSchedule,omitzero"`
	LastSuccessful time.Time `json:"lastSuccessful,omitzero"`
	// Boot is the boot in which a CronJob that runs at boot ran last.
	Boot string `json:"boot,omitempty"`
	// Started are the times that were started, in ascending order.
	Started []Span `json:"started,omitempty"`
	// Clock is the last time of a clock that could be right by which something was decided.
	Clock time.Time `json:"clock,omitzero"`
	// Jobs are the Jobs that should be, oldest first.
	Jobs []Job `json:"jobs,omitempty"`
	// Templates have what Jobs are made from, by the digests that these name.
	Templates map[string]json.RawMessage `json:"templates,omitempty"`
	// Missed is the time that was too late last, Held the one that waits for the end of an active Job, and Skipped
	// the one before which more than 100 were not started.
	Missed  time.Time `json:"missed,omitzero"`
	Held    time.Time `json:"held,omitzero"`
	Skipped time.Time `json:"skipped,omitzero"`
	// Problem is why nothing is scheduled.
	Problem Problem `json:"problem,omitzero"`
}

// Job is a Job of a CronJob.
type Job struct {
	Name string `json:"name"`
	// Time is the time of the schedule; of a Job that was asked for, when.
	Time   time.Time `json:"time"`
	Manual bool      `json:"manual,omitempty"`
	// Template is the key of what it was made from in Templates. An edit of the CronJob does not change it.
	Template string `json:"template"`
	// Outcome is the condition Complete or Failed when the Job has finished.
	Outcome batchv1.JobConditionType `json:"outcome,omitempty"`
}

// Problem is why nothing is scheduled, or why a Job was not created. The zero value is none.
type Problem struct {
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Request asks for a Job now.
type Request struct {
	// UID is that of the CronJob's History.
	UID string `json:"uid"`
	Job string `json:"job"`
}

// Input is everything that Decide decides from.
type Input struct {
	// CronJob has its defaults.
	CronJob *batchv1.CronJob
	// Template is what Jobs are made from, and Digest identifies it.
	Template json.RawMessage
	Digest   string
	// AtBoot starts a Job once in each boot, in place of the schedule.
	AtBoot bool
	Boot   string
	// History is what is recorded; nil if nothing is. It is not modified.
	History  *History
	Requests []Request
	// Jobs has the runs of the Jobs that have begun, by name. Foreign reports that a Job of another owner has a name.
	Jobs    map[string]*jobs.History
	Foreign func(name string) bool
	// Busy is how many pods the Jobs of the other CronJobs of the manifest may run now.
	Busy int
	// Now is the time by the clock.
	Now time.Time
	Trust
}

// Trust is what is known of the clock.
type Trust struct {
	// Synchronized reports that a source of time has told the kernel, Set that somebody has set the clock since
	// podrun started.
	Synchronized, Set bool
	// Recorded is the latest Clock of any CronJob. A clock that was neither synchronized nor set and shows an
	// earlier time cannot be right.
	Recorded time.Time
}

// sane reports that a clock that shows now can be right.
func (t Trust) sane(now time.Time) bool {
	return t.Synchronized || !now.Before(plausible) && (t.Set || !now.Before(t.Recorded))
}

// Plan is the result of Decide.
type Plan struct {
	History *History
	// Next is when to decide again even if nothing happens; zero: never.
	Next time.Time
}

// Limits.
const (
	// MaxJobs is how many Jobs of one CronJob may be active, and how many of each outcome stay, if each runs one pod at
	// a time. If each runs more, there may be fewer Jobs: MaxJobs is also the number of those pods.
	MaxJobs = 1000
	// maxTemplates is how many bytes the templates of the Jobs that are may have together. They are recorded anew with
	// each of them.
	maxTemplates = 4 << 20
	// many is how many times may be missed without a warning, as in Kubernetes' controller.
	many = 100
	// clockCheck is when to look again at a clock that cannot be right.
	clockCheck = 10 * time.Second
)

// plausible is a time that was over when this was written: no clock that is right shows an earlier one.
var plausible = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Decide returns what a CronJob needs now.
func Decide(in Input) Plan {
	d := decision{Input: in}
	d.Now = in.Now.Round(0).UTC() // as it is read back
	if in.History == nil {
		d.h = &History{UID: fmt.Sprintf("%s-%x", in.Digest, in.Now.UnixNano())}
	} else {
		d.h = in.History.clone()
	}
	d.h.Problem = Problem{}
	d.observe()
	d.answer()
	switch suspend := in.CronJob.Spec.Suspend; {
	case suspend != nil && *suspend:
		d.h.Held = time.Time{}
	case in.AtBoot:
		d.atBoot()
	default:
		d.schedule()
	}
	d.limit(batchv1.JobComplete, in.CronJob.Spec.SuccessfulJobsHistoryLimit)
	d.limit(batchv1.JobFailed, in.CronJob.Spec.FailedJobsHistoryLimit)
	d.prune()
	return Plan{History: d.h, Next: d.next}
}

// decision is one call of Decide.
type decision struct {
	Input
	h    *History
	next time.Time
}

// Valid returns an error if the history cannot be one that podrun has recorded: its file was damaged.
func (h *History) Valid() error {
	if h.UID == "" {
		return errors.New("it names no CronJob")
	}
	for _, j := range h.Jobs {
		if _, has := h.Templates[j.Template]; j.Name == "" || !has {
			return fmt.Errorf("Job %q was made from nothing", j.Name)
		}
	}
	return nil
}

func (h *History) clone() *History {
	out := *h
	out.Started, out.Jobs = slices.Clone(h.Started), slices.Clone(h.Jobs)
	out.Templates = maps.Clone(h.Templates)
	return &out
}

// observe records which Jobs have finished, and drops those that are gone.
func (d *decision) observe() {
	for i := range d.h.Jobs {
		j := &d.h.Jobs[i]
		run := d.Jobs[j.Name]
		if run == nil || j.Outcome != "" {
			continue
		}
		end := jobs.Finished(&run.Status)
		if end == nil {
			continue
		}
		j.Outcome = end.Type
		if at := run.Status.CompletionTime; at != nil && at.After(d.h.LastSuccessful) && run.Complete() {
			d.h.LastSuccessful = at.Time
		}
	}
	d.h.Jobs = slices.DeleteFunc(d.h.Jobs, func(j Job) bool {
		run := d.Jobs[j.Name]
		return run != nil && run.Expired || d.Foreign(j.Name)
	})
}

// answer creates the Jobs that were asked for.
func (d *decision) answer() {
	for _, r := range d.Requests {
		if r.UID == d.h.UID && !d.h.Has(r.Job) && !d.Foreign(r.Job) {
			d.create(Job{Name: r.Job, Time: d.Now, Manual: true})
		}
	}
}

// Has reports that there is a Job of the name.
func (h *History) Has(name string) bool {
	return slices.ContainsFunc(h.Jobs, func(j Job) bool { return j.Name == name })
}

func (d *decision) create(j Job) {
	j.Template = d.Digest
	if d.h.Templates == nil {
		d.h.Templates = map[string]json.RawMessage{}
	}
	d.h.Templates[j.Template] = d.Template
	d.h.Jobs = append(d.h.Jobs, j)
}

// Active returns the Jobs of the schedule that have not finished.
func (h *History) Active() (all []Job) {
	for _, j := range h.Jobs {
		if j.Outcome == "" && !j.Manual {
			all = append(all, j)
		}
	}
	return all
}

// minute returns the number by which a time counts, and which ends the name of its Job.
func minute(t time.Time) int64 { return t.Unix() / 60 }

func (d *decision) name(minute int64) string { return fmt.Sprintf("%s-%d", d.CronJob.Name, minute) }

// atBoot starts a Job unless this boot has had one. It does not depend on the clock, so of two boots in one minute by
// the clock, the second takes the next number.
func (d *decision) atBoot() {
	if d.h.Boot == d.Boot {
		return
	}
	n := minute(d.Now)
	for d.h.Has(d.name(n)) || d.Foreign(d.name(n)) {
		n++
	}
	if d.start(n, d.Now, n-1) {
		d.h.Boot = d.Boot
	}
}

// schedule starts a Job for the newest time that is due, and decides when the next one is.
func (d *decision) schedule() {
	d.h.Boot = ""
	times, err := schedule.New(d.CronJob.Spec.Schedule, d.CronJob.Spec.TimeZone)
	if err != nil { // the data base of time zones has changed
		d.h.Problem = Problem{"UnparseableSchedule", fmt.Sprintf("unparseable schedule: %q : %s",
			d.CronJob.Spec.Schedule, err)}
		return
	}
	if !d.sane(d.Now) {
		d.h.Problem = Problem{"ClockNotSynchronized", "Nothing is scheduled until the clock is synchronized: it shows " +
			"an earlier time than was recorded before"}
		d.next = d.Now.Add(clockCheck)
		return
	}
	if d.h.Created.IsZero() || d.h.Created.After(d.Now) {
		d.h.Created = d.Now
	}
	if d.h.Clock.IsZero() || d.h.Clock.After(d.Now) {
		d.h.Clock = d.Now
	}
	since := d.since()
	latest, next := times.Latest(since, d.Now).UTC(), times.Next(since, d.Now)
	d.next = next
	if latest.IsZero() && next.IsZero() {
		d.h.Problem = Problem{"InvalidSchedule", fmt.Sprintf("invalid schedule: %s : no time within five years",
			d.CronJob.Spec.Schedule)}
	}
	if latest.IsZero() || d.started(latest) {
		d.h.Held = time.Time{}
		return
	}
	if deadline := d.CronJob.Spec.StartingDeadlineSeconds; deadline != nil &&
		latest.Add(time.Duration(*deadline)*time.Second).Before(d.Now) {
		d.h.Missed, d.h.Held = latest, time.Time{}
		return
	}
	if d.start(minute(latest), latest, d.previous(times, latest)) && times.Exceeds(many, since, d.Now) {
		d.h.Skipped = latest
	}
}

// since returns the last time that was started, after which times count.
func (d *decision) since() time.Time {
	if t := d.h.LastSchedule; !t.IsZero() && !t.After(d.Now) {
		return t
	}
	latest := d.h.Created
	for _, s := range d.h.Started { // the clock was set back before the last one
		if t := time.Unix(min(s.Last, minute(d.Now))*60, 0); t.After(latest) && s.First <= minute(d.Now) {
			latest = t
		}
	}
	return latest
}

// started reports that a time was started, or may have been.
func (d *decision) started(t time.Time) bool {
	n := minute(t)
	return has(d.h.Started, n) || d.h.Has(d.name(n))
}

// previous returns the time by which t is the next one, in minutes, if that was started last. Else it is the minute
// before t.
func (d *decision) previous(times schedule.Schedule, t time.Time) int64 {
	if last := d.h.LastSchedule; !last.IsZero() && times.Next(last, last).Equal(t) {
		return minute(last)
	}
	return minute(t) - 1
}

// start creates the Job of a time, as far as the concurrencyPolicy allows it. Else the time waits. previous is the
// time before it, in minutes.
func (d *decision) start(n int64, t time.Time, previous int64) bool {
	active := d.h.Active()
	if d.CronJob.Spec.ConcurrencyPolicy == batchv1.ForbidConcurrent && len(active) > 0 {
		d.h.Held = t
		return false
	}
	if d.CronJob.Spec.ConcurrencyPolicy == batchv1.ReplaceConcurrent {
		d.h.Jobs = slices.DeleteFunc(d.h.Jobs, func(j Job) bool { return j.Outcome == "" && !j.Manual })
	} else if why := d.full(active); why != "" {
		d.h.Problem = Problem{"FailedCreate", "Error creating job: " + why}
		return false
	}
	d.h.LastSchedule, d.h.Held, d.h.Clock = t, time.Time{}, d.Now
	d.h.Started = add(d.h.Started, n, previous)
	if name := d.name(n); d.Foreign(name) {
		d.h.Problem = Problem{"FailedCreate", fmt.Sprintf("Error creating job: jobs.batch %q already exists", name)}
	} else {
		d.create(Job{Name: name, Time: t})
	}
	return true
}

// size returns how many bytes the templates have.
func (h *History) size() (n int) {
	for _, text := range h.Templates {
		n += len(text)
	}
	return n
}

// full returns why there cannot be another Job beside the active ones; "" if there can be.
func (d *decision) full(active []Job) string {
	_, known := d.h.Templates[d.Digest]
	switch most := d.most(); {
	case len(active) >= most:
		return fmt.Sprintf("%d are active, which is the most", most)
	case len(active) > 0 && d.Busy+(len(active)+1)*MaxJobs/most > MaxJobs:
		return fmt.Sprintf("the CronJobs of a manifest run %d pods at most", MaxJobs)
	case len(active) > 0 && !known && d.h.size()+len(d.Template) > maxTemplates:
		return fmt.Sprintf("the Jobs that are have templates of %d MiB, which is the most", maxTemplates>>20)
	}
	return ""
}

// most is how many Jobs may be active, and how many of each outcome stay.
func (d *decision) most() int {
	if pods := d.CronJob.Spec.JobTemplate.Spec.Parallelism; pods != nil {
		return MaxJobs / int(max(1, min(*pods, MaxJobs)))
	}
	return MaxJobs
}

// limit removes the oldest Jobs of an outcome.
func (d *decision) limit(outcome batchv1.JobConditionType, limit *int32) {
	most, n := d.most(), 0
	if limit != nil {
		most = min(int(*limit), most)
	}
	for i, j := range slices.Backward(d.h.Jobs) {
		if j.Outcome != outcome {
			continue
		}
		if n++; n > most {
			d.h.Jobs = slices.Delete(d.h.Jobs, i, i+1)
		}
	}
}

// prune removes the templates that no Job needs, and the oldest Jobs that have finished if those of all are too large.
func (d *decision) prune() {
	for {
		maps.DeleteFunc(d.h.Templates, func(key string, _ json.RawMessage) bool {
			return !slices.ContainsFunc(d.h.Jobs, func(j Job) bool { return j.Template == key })
		})
		i := slices.IndexFunc(d.h.Jobs, func(j Job) bool { return j.Outcome != "" })
		if i < 0 || d.h.size() <= maxTemplates {
			break
		}
		d.h.Jobs = slices.Delete(d.h.Jobs, i, i+1)
	}
	if len(d.h.Jobs) == 0 { // as it is read back
		d.h.Jobs, d.h.Templates = nil, nil
	}
}

// Event is an event of a CronJob.
type Event struct {
	Warning         bool
	Reason, Message string
}

// Events returns the events by which one history became the next one, with the reasons of Kubernetes' controller.
// before may be nil.
func Events(before, after *History) (all []Event) {
	if before == nil {
		before = &History{}
	}
	add := func(warning bool, reason, format string, values ...any) {
		all = append(all, Event{Warning: warning, Reason: reason, Message: fmt.Sprintf(format, values...)})
	}
	was := map[string]Job{}
	for _, j := range before.Jobs {
		was[j.Name] = j
	}
	for _, j := range after.Jobs {
		old, existed := was[j.Name]
		delete(was, j.Name)
		if !existed {
			add(false, "SuccessfulCreate", "Created job %s", j.Name)
		}
		if j.Outcome != old.Outcome {
			add(false, "SawCompletedJob", "Saw completed job: %s, condition: %s", j.Name, j.Outcome)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		add(false, "SuccessfulDelete", "Deleted job %s", name)
	}
	changed := func(a, b time.Time) bool { return !b.IsZero() && !b.Equal(a) }
	if changed(before.Missed, after.Missed) {
		add(true, "MissSchedule", "Missed scheduled time to start a job: %s", after.Missed.UTC().Format(time.RFC1123Z))
	}
	if changed(before.Held, after.Held) {
		add(false, "JobAlreadyActive",
			"Not starting job because prior execution is running and concurrency policy is Forbid")
	}
	if changed(before.Skipped, after.Skipped) {
		add(true, "TooManyMissedTimes", "too many missed start times. Set or decrease "+
			".spec.startingDeadlineSeconds or check clock skew")
	}
	if p := after.Problem; p != before.Problem && p.Reason != "" {
		add(true, p.Reason, "%s", p.Message)
	}
	return all
}
