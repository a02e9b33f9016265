// Package jobs decides what becomes of the runs of Jobs: which pods a Job should have now, what its
// status is, and when to decide again. It follows Kubernetes' Job controller
// (pkg/controller/job/job_controller.go), with one difference: a pod is always gone before another one
// takes its place, so an index never runs twice at once.
//
// It is pure: (Job, history, pods, now) -> (history, pods). The caller records the history before it
// starts or stops a pod.
//
// Begin reading at Decide.
package jobs

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/pod"
)

// History is what is recorded of a run of a Job.
type History struct {
	// Run identifies the run.
	Run string `json:"run"`
	// Document identifies what the run is of: another document is another run.
	Document string `json:"document"`
	// Began is when the run began; zero in a history that an earlier podrun has recorded.
	Began time.Time `json:"began,omitzero"`
	// Boot is the boot in which the run began.
	Boot string `json:"boot,omitempty"`
	// Status is the Job's status, as of the last decision.
	Status batchv1.JobStatus `json:"status"`
	// Created counts the pods that were created.
	Created int `json:"created,omitempty"`
	// Tries are the pods that were created, oldest first, without those that are removed.
	Tries []Try `json:"tries,omitempty"`
	// Failures are those since the last success, for the back-off.
	Failures Failures `json:"failures,omitzero"`
	// Indexes has the failures of each index that had some.
	Indexes map[int]Failures `json:"indexes,omitempty"`
	// Expired reports that ttlSecondsAfterFinished has passed: the pods are removed.
	Expired bool `json:"expired,omitempty"`
}

// Failures counts tries that have ended without a success.
type Failures struct {
	// Tries counts all of them, Failed those that have failed, and Count those of these that the
	// podFailurePolicy does not ignore.
	Tries  int `json:"tries,omitempty"`
	Failed int `json:"failed,omitempty"`
	Count  int `json:"count,omitempty"`
	// Last is when one failed last.
	Last time.Time `json:"last,omitzero"`
}

// Outcome is how a try ended.
type Outcome string

// The outcomes. The zero value is that of a try that has not ended.
const (
	Succeeded Outcome = "Succeeded"
	Failed    Outcome = "Failed"
)

// Try is one pod of a run.
type Try struct {
	// Name is the pod's name, without the node's.
	Name string `json:"name"`
	// Index is the completion index; 0 without completionMode Indexed.
	Index int `json:"index,omitempty"`
	// Number counts the failures of the index before.
	Number  int     `json:"number,omitempty"`
	Outcome Outcome `json:"outcome,omitempty"`
	// Stops reports that the pod is being removed before it has ended, and Counts that its end counts nevertheless: it
	// is removed because the Job fails, and not because it succeeds, is suspended, or has fewer pods now.
	Stops  bool `json:"stops,omitempty"`
	Counts bool `json:"counts,omitempty"`
}

// active reports that the try has not ended and may go on.
func (t Try) active() bool { return t.Outcome == "" && !t.Stops }

// Observed is what is known of a pod that exists.
type Observed struct {
	// Run is the run that it belongs to.
	Run string
	// Pod has the status that was published last; nil if none was since podrun started.
	Pod *v1.Pod
	// Ended reports that the checkpoint of the pod says that all of it has ended: it does not run again when
	// podrun is started again. A result counts only then.
	Ended bool
}

// ended returns the final phase of the pod; "" if it has none.
func (o Observed) ended() v1.PodPhase {
	if o.Pod == nil || !o.Ended || o.Pod.Status.Phase != v1.PodSucceeded && o.Pod.Status.Phase != v1.PodFailed {
		return ""
	}
	return o.Pod.Status.Phase
}

// over reports that the pod is seen to have ended, by its status or else by its checkpoint.
func (o Observed) over() bool { return o.ended() != "" || o.Pod == nil && o.Ended }

// Input is everything that Decide decides from.
type Input struct {
	// Job has its defaults.
	Job *batchv1.Job
	// Document identifies the document, and Former is what an earlier podrun has recorded for it: a History that has
	// that gets Document. PerBoot makes each boot begin a new run.
	Document string
	Former   string
	PerBoot  bool
	Boot     string
	// History is that of the Job's last run; nil if there was none. It is not modified.
	History *History
	// Pods are the pods of the Job that exist, of any run, by their names without the node's.
	Pods map[string]Observed
	// Reserved reports that another pod has a name, without the node's. It may be nil.
	Reserved func(name string) bool
	Now      time.Time
}

// Plan is the result of Decide.
type Plan struct {
	History *History
	// Pods are those that should exist.
	Pods []Try
	// Next is when to decide again even if nothing happens; zero: never.
	Next time.Time
}

// Limits protect the machine.
const (
	// maxKept is how many pods that have ended stay.
	maxKept = 100
	// The back-off of Kubernetes' Job controller (DefaultJobPodFailureBackOff, MaxJobPodFailureBackOff).
	firstBackoff, maxBackoff = 10 * time.Second, 10 * time.Minute
)

// Decide returns what a Job needs now.
func Decide(in Input) Plan {
	d := decision{Input: in, done: set{}, failed: set{}}
	if h := in.History; h == nil || !in.sameDocument(h) || in.PerBoot && h.Boot != in.Boot {
		d.h = &History{
			Run: in.Document + "-" + strconv.FormatInt(in.Now.UnixNano(), 36), Document: in.Document, Boot: in.Boot,
			Began: in.Now,
		}
	} else {
		d.h = h.clone()
		d.h.Document = in.Document
	}
	d.done, d.failed = parse(d.h.Status.CompletedIndexes), set{}
	if d.h.Status.FailedIndexes != nil {
		d.failed = parse(*d.h.Status.FailedIndexes)
	}
	d.h.setBack(d.Now)
	if Finished(&d.h.Status) == nil {
		d.observe()
		d.judge()
		d.manage()
	}
	d.expire()
	// The pods that have ended, as is recorded, and that are not seen to have: their checkpoints are lost or old.
	// They are removed, and would start again if they were wanted again when a status says what became of them.
	d.h.Tries = slices.DeleteFunc(d.h.Tries, func(t Try) bool {
		o, _ := d.pod(t.Name)
		return t.Outcome != "" && !o.over()
	})
	d.count()
	return Plan{History: d.h, Pods: d.wanted(), Next: d.next}
}

func (in Input) sameDocument(h *History) bool {
	return h.Document == in.Document || h.Document == in.Former
}

// Keep returns the pods of a run about which nothing new can be decided, because that could not be
// recorded.
func Keep(in Input) Plan {
	if in.History == nil {
		return Plan{}
	}
	d := decision{Input: in, h: in.History}
	return Plan{History: in.History, Pods: d.wanted()}
}

// decision is one call of Decide.
type decision struct {
	Input
	h            *History
	done, failed set // indexes
	next         time.Time
}

func (h *History) clone() *History {
	out := *h
	out.Status = *h.Status.DeepCopy()
	out.Tries = slices.Clone(h.Tries)
	out.Indexes = map[int]Failures{}
	for i, f := range h.Indexes {
		out.Indexes[i] = f
	}
	return &out
}

func (in Input) indexed() bool {
	mode := in.Job.Spec.CompletionMode
	return mode != nil && *mode == batchv1.IndexedCompletion
}

// pod returns what is known of a pod of this run, and whether it exists.
func (d *decision) pod(name string) (Observed, bool) {
	o, exists := d.Pods[name]
	if o.Run != d.h.Run {
		return Observed{}, false
	}
	return o, exists
}

// wakeAt makes Next at most t.
func (d *decision) wakeAt(t time.Time) {
	if d.next.IsZero() || t.Before(d.next) {
		d.next = t
	}
}

// observe records which tries have ended.
func (d *decision) observe() {
	for i := range d.h.Tries {
		t := &d.h.Tries[i]
		o, exists := d.pod(t.Name)
		switch {
		case t.Outcome != "":
		case t.Stops && !exists:
			t.Outcome = Failed
			if t.Counts {
				d.h.Status.Failed++
			}
			d.lose(t.Index, Failures{Tries: 1})
		case t.Stops && (!t.Counts || o.ended() != v1.PodSucceeded):
		case o.ended() == v1.PodSucceeded:
			t.Outcome = Succeeded
			d.h.Failures = Failures{}
			if !d.indexed() {
				d.h.Status.Succeeded++
			} else {
				d.done[t.Index] = true
				delete(d.h.Indexes, t.Index)
			}
		case o.ended() == v1.PodFailed:
			t.Outcome = Failed
			d.fail(t, o.Pod)
		}
	}
	d.h.Tries = slices.DeleteFunc(d.h.Tries, func(t Try) bool { return t.Stops && t.Outcome != "" })
}

// fail records a failed pod by the podFailurePolicy.
func (d *decision) fail(t *Try, p *v1.Pod) {
	action, message := d.failureAction(p)
	if action == batchv1.PodFailurePolicyActionIgnore {
		d.lose(t.Index, Failures{Tries: 1, Failed: 1, Last: d.Now})
		return
	}
	d.h.Status.Failed++
	d.lose(t.Index, Failures{Tries: 1, Failed: 1, Count: 1, Last: d.Now})
	switch {
	case action == batchv1.PodFailurePolicyActionFailJob:
		d.aim(batchv1.JobFailureTarget, batchv1.JobReasonPodFailurePolicy, message)
	case action == batchv1.PodFailurePolicyActionFailIndex && d.Job.Spec.BackoffLimitPerIndex != nil:
		d.failed[t.Index] = true
	}
	if limit := d.Job.Spec.BackoffLimitPerIndex; limit != nil && d.h.Indexes[t.Index].Count > int(*limit) {
		d.failed[t.Index] = true
	}
}

// lose records that a try of an index has ended without a success.
func (d *decision) lose(index int, one Failures) {
	d.h.Failures = d.h.Failures.plus(one)
	if d.indexed() {
		if d.h.Indexes == nil {
			d.h.Indexes = map[int]Failures{}
		}
		d.h.Indexes[index] = d.h.Indexes[index].plus(one)
	}
}

// actives returns the number of tries that may go on.
func (d *decision) actives() (n int) {
	for _, t := range d.h.Tries {
		if t.active() {
			n++
		}
	}
	return n
}

// unfinished reports that a try has not ended, whether or not it may go on.
func (d *decision) unfinished() bool {
	return slices.ContainsFunc(d.h.Tries, func(t Try) bool { return t.Outcome == "" })
}

// stop removes the newest tries that may go on until at most n are left.
func (d *decision) stop(n int) {
	for i := len(d.h.Tries) - 1; i >= 0 && d.actives() > n; i-- {
		if t := &d.h.Tries[i]; t.active() {
			target := d.target()
			t.Stops, t.Counts = true, target != nil && target.Type == batchv1.JobFailureTarget
		}
	}
}

// succeeded returns the number of completions.
func (d *decision) succeeded() int {
	if d.indexed() {
		return len(d.done)
	}
	return int(d.h.Status.Succeeded)
}

// manage ends the Job when its result is known and its pods are gone, and else makes it have as many
// pods as it should.
func (d *decision) manage() {
	s, job := &d.h.Status, &d.Job.Spec
	if target := d.target(); target != nil {
		d.stop(0)
		if d.unfinished() {
			return
		}
		kind := batchv1.JobFailed
		if target.Type == batchv1.JobSuccessCriteriaMet {
			kind = batchv1.JobComplete
			s.CompletionTime = &metav1.Time{Time: d.Now}
		}
		d.set(kind, v1.ConditionTrue, target.Reason, target.Message)
		return
	}
	if job.Suspend != nil && *job.Suspend {
		d.stop(0)
		s.StartTime = nil
		d.set(batchv1.JobSuspended, v1.ConditionTrue, "JobSuspended", "Job suspended")
		return
	}
	if c := condition(s, batchv1.JobSuspended); c != nil && c.Status == v1.ConditionTrue {
		d.set(batchv1.JobSuspended, v1.ConditionFalse, "JobResumed", "Job resumed")
	}
	want, active := d.parallel(), d.actives()
	if d.stop(want); active >= want || d.earlierRuns(d.h.Run) {
		return
	}
	d.create(want)
}

// parallel returns how many pods should run.
func (d *decision) parallel() int {
	parallelism := int(*d.Job.Spec.Parallelism)
	switch completions := d.Job.Spec.Completions; {
	case completions != nil:
		return max(0, min(parallelism, int(*completions)-d.succeeded()))
	case d.h.Status.Succeeded > 0:
		return min(parallelism, d.actives())
	}
	return parallelism
}

// earlierRuns reports that pods of another run exist. They go first.
func (in Input) earlierRuns(run string) bool {
	for _, o := range in.Pods {
		if o.Run != run {
			return true
		}
	}
	return false
}

// reserved reports that a new try must not have the name: another pod, or another try, has it.
func (d *decision) reserved(name string) bool {
	mine := slices.ContainsFunc(d.h.Tries, func(t Try) bool { return t.Name == name })
	return mine || d.Reserved != nil && d.Reserved(name)
}

// create adds tries until as many are not over as are wanted. A try that is being removed counts, so its
// successor waits for its end.
func (d *decision) create(want int) {
	perIndex := d.Job.Spec.BackoffLimitPerIndex != nil
	if at := d.until(d.h.Failures); !perIndex && at.After(d.Now) {
		d.wakeAt(at)
		return
	}
	taken, n := set{}, 0
	for _, t := range d.h.Tries {
		if t.Outcome == "" {
			taken[t.Index] = true
			n++
		}
	}
	if !d.indexed() {
		for n < want {
			name := fmt.Sprintf("%s-%d", d.Job.Name, d.h.Created)
			d.h.Created++
			if !d.reserved(name) {
				d.h.Tries = append(d.h.Tries, Try{Name: name})
				n++
			}
		}
		return
	}
	for i := 0; i < int(*d.Job.Spec.Completions) && n < want; i++ {
		if taken[i] || d.done[i] || d.failed[i] {
			continue
		}
		f := d.h.Indexes[i]
		if at := d.until(f); perIndex && at.After(d.Now) {
			d.wakeAt(at)
			continue
		}
		t := Try{Name: fmt.Sprintf("%s-%d", d.Job.Name, i), Index: i, Number: f.Count}
		for first, r := t.Name, f.Tries; r > 0 || d.reserved(t.Name); r++ {
			if t.Name = fmt.Sprintf("%s-r%d", first, r); !d.reserved(t.Name) {
				break
			}
		}
		d.h.Tries = append(d.h.Tries, t)
		d.h.Created++
		n++
	}
}

// expire removes the pods of a Job that finished long enough ago.
func (d *decision) expire() {
	end, ttl := Finished(&d.h.Status), d.Job.Spec.TTLSecondsAfterFinished
	if end == nil || ttl == nil || d.h.Expired {
		return
	}
	at := end.LastTransitionTime.Add(time.Duration(*ttl) * time.Second)
	if at.After(d.Now) {
		d.wakeAt(at)
		return
	}
	d.h.Expired, d.h.Tries = true, nil
}

// count sets the counts of the status.
func (d *decision) count() {
	s := &d.h.Status
	ready, terminating := int32(0), int32(0)
	for _, t := range d.h.Tries {
		o, _ := d.pod(t.Name)
		if t.Outcome == "" && t.Stops {
			terminating++
		}
		if t.active() && o.Pod != nil && pod.IsReady(o.Pod) {
			ready++
		}
	}
	s.Active, s.Ready, s.Terminating = int32(d.actives()), &ready, &terminating
	s.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	if d.indexed() {
		s.Succeeded, s.CompletedIndexes = int32(len(d.done)), d.done.String()
		if d.Job.Spec.BackoffLimitPerIndex != nil {
			text := d.failed.String()
			s.FailedIndexes = &text
		}
	}
	ended := 0
	for i := range slices.Backward(d.h.Tries) {
		if d.h.Tries[i].Outcome == "" {
			continue
		}
		if ended++; ended > maxKept {
			d.h.Tries = slices.Delete(d.h.Tries, i, i+1)
		}
	}
}

// wanted returns the pods that should exist. Of those that have ended only such that are known to have:
// another one would run again.
func (d *decision) wanted() (all []Try) {
	for _, t := range d.h.Tries {
		if o, _ := d.pod(t.Name); t.active() || t.Outcome != "" && o.over() {
			all = append(all, t)
		}
	}
	return all
}
