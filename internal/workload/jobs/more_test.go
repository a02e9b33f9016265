package jobs

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestManyIndexes: a rule about two billion indexes takes no memory for each. Not parallel: it counts allocations.
func TestManyIndexes(t *testing.T) {
	m := newModel(t, func(s *batchv1.JobSpec) {
		indexed(s)
		all := "0-2147483646"
		s.Completions = number(2147483647)
		s.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: &all, SucceededCount: number(1)}}}
	})
	m.step(0, "", "work-0 0/0")
	if n := testing.AllocsPerRun(1, func() { m.decide() }); n > 1000 {
		t.Errorf("%v allocations", n)
	}
	m.step(time.Second, "work-0 succeeded", "1/0 done 0 SuccessCriteriaMet=SuccessPolicy Complete=SuccessPolicy")
	for _, text := range []string{"0-9223372036854775807", "-1", "3-1", "a-b"} {
		if got := parse(text); len(got) > 0 {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestDeadlineOfZero: no pod starts.
func TestDeadlineOfZero(t *testing.T) {
	t.Parallel()
	m := newModel(t, func(s *batchv1.JobSpec) { s.ActiveDeadlineSeconds = new(int64(0)) })
	m.step(0, "", "0/0 FailureTarget=DeadlineExceeded Failed=DeadlineExceeded")
}

// TestSucceedsWhileItIsStopped: a pod that succeeds within its grace period counts, if it is stopped because the Job ends.
func TestSucceedsWhileItIsStopped(t *testing.T) {
	t.Parallel()
	m := newModel(t, func(s *batchv1.JobSpec) { s.ActiveDeadlineSeconds = new(int64(60)) })
	m.step(0, "", "work-0 0/0 next 1m0s")
	m.step(time.Minute, "", "0/0 FailureTarget=DeadlineExceeded")
	m.step(time.Second, "work-0 succeeded", "1/0 FailureTarget=DeadlineExceeded Failed=DeadlineExceeded")
	m.step(time.Second, "work-0 gone", "1/0 FailureTarget=DeadlineExceeded Failed=DeadlineExceeded")
}

// TestStoppedBeforeTheEnd: a pod that is stopped because there are to be fewer does not count, also if the Job ends
// before it does.
func TestStoppedBeforeTheEnd(t *testing.T) {
	t.Parallel()
	m := newModel(t, func(s *batchv1.JobSpec) { s.Completions, s.Parallelism = nil, number(2) })
	m.step(0, "", "work-0 work-1 0/0")
	m.job.Spec.Parallelism = number(1)
	m.step(time.Second, "", "work-0 0/0")
	m.step(time.Second, "work-0 succeeded", "1/0 SuccessCriteriaMet=CompletionsReached")
	m.step(time.Second, "work-1 gone", "1/0 SuccessCriteriaMet=CompletionsReached Complete=CompletionsReached")
}

// TestTakenNames: a try does not wait for a name that another pod has.
func TestTakenNames(t *testing.T) {
	t.Parallel()
	m := newModel(t, func(s *batchv1.JobSpec) { s.Completions, s.Parallelism = number(2), number(2) })
	m.taken = "work-1"
	m.step(0, "", "work-0 work-2 0/0")

	m = newModel(t, func(s *batchv1.JobSpec) { indexed(s); s.Completions, s.Parallelism = number(2), number(2) })
	m.taken = "work-1 work-1-r1"
	m.step(0, "", "work-0 work-1-r0 0/0")
	m.step(time.Second, "work-1-r0 failed 1", "work-0 0/1 next 10s")
	m.step(10*time.Second, "", "work-0 work-1-r2 0/1")
	m.step(time.Second, "work-1-r2 failed 1", "work-0 0/2 next 20s")
	m.step(20*time.Second, "", "work-0 work-1-r3 0/2")
}

// TestClockSetBack: a deadline, and the time for which a finished Job stays, begin anew when the clock is set back
// before they began.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	m := newModel(t, func(s *batchv1.JobSpec) {
		s.ActiveDeadlineSeconds, s.TTLSecondsAfterFinished = new(int64(60)), number(10)
	})
	const complete = "1/0 SuccessCriteriaMet=CompletionsReached Complete=CompletionsReached"
	m.step(0, "", "work-0 0/0 next 1m0s")
	m.step(-24*365*time.Hour, "", "work-0 0/0 next 1m0s")
	m.step(time.Second, "work-0 succeeded", complete+" next 10s")
	m.step(-24*365*time.Hour, "", complete+" next 10s")
	m.step(10*time.Second, "", complete)
}

// TestClockStep: what was recorded since the machine was booted by a clock that was wrong is moved as the clock is; what
// was recorded before is not.
func TestClockStep(t *testing.T) {
	t.Parallel()
	boot := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	by := Step{By: 56 * 365 * 24 * time.Hour, From: boot, To: boot.Add(time.Minute)}
	at := boot.Add(30 * time.Second)
	h := &History{Run: "r", Began: at, Failures: Failures{Last: at}, Indexes: map[int]Failures{3: {Last: at}}}
	h.Status.StartTime, h.Status.CompletionTime = &metav1.Time{Time: at}, &metav1.Time{Time: at}
	h.Status.Conditions = []batchv1.JobCondition{{
		Type: batchv1.JobComplete, Status: v1.ConditionTrue, LastTransitionTime: metav1.Time{Time: at},
	}}
	got, want := h.Shifted(by), at.Add(by.By)
	for what, is := range map[string]time.Time{
		"began": got.Began, "start": got.Status.StartTime.Time, "completion": got.Status.CompletionTime.Time,
		"condition": got.Status.Conditions[0].LastTransitionTime.Time, "failure": got.Failures.Last, "index": got.Indexes[3].Last,
	} {
		if !is.Equal(want) {
			t.Errorf("%s: %s, want %s", what, is, want)
		}
	}
	if !h.Began.Equal(at) || !h.Status.StartTime.Time.Equal(at) || !h.Indexes[3].Last.Equal(at) {
		t.Error("the history itself was changed")
	}
	later := &History{Began: boot.Add(time.Hour)}
	if later.Shifted(by) != later {
		t.Error("a time that the clock had not shown was changed")
	}
	if zero := (&History{}).Shifted(Step{By: time.Hour, To: at}); !zero.Began.IsZero() {
		t.Error("a time that is not known was changed")
	}
}

// has reports whether a word is in a text.
func has(text, word string) bool {
	for one := range strings.FieldsSeq(text) {
		if one == word {
			return true
		}
	}
	return false
}

// TestDuration: a Job that has finished, however, took the time until then; one without that time, or with one before
// its start because the clock was set, counts on.
func TestDuration(t *testing.T) {
	t.Parallel()
	at := func(minute int) *metav1.Time {
		return &metav1.Time{Time: time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC)}
	}
	ended := func(kind batchv1.JobConditionType, is v1.ConditionStatus, minute int) []batchv1.JobCondition {
		return []batchv1.JobCondition{{Type: kind, Status: is, LastTransitionTime: *at(minute)}}
	}
	for name, c := range map[string]struct {
		status batchv1.JobStatus
		want   int
	}{
		"running":   {batchv1.JobStatus{StartTime: at(1)}, 49},
		"complete":  {batchv1.JobStatus{StartTime: at(1), CompletionTime: at(4), Conditions: ended(batchv1.JobComplete, v1.ConditionTrue, 5)}, 3},
		"failed":    {batchv1.JobStatus{StartTime: at(1), Conditions: ended(batchv1.JobFailed, v1.ConditionTrue, 6)}, 5},
		"suspended": {batchv1.JobStatus{StartTime: at(1), Conditions: ended(batchv1.JobSuspended, v1.ConditionFalse, 6)}, 49},
		"before":    {batchv1.JobStatus{StartTime: at(10), Conditions: ended(batchv1.JobFailed, v1.ConditionTrue, 6)}, 40},
	} {
		if got, began := Duration(&c.status, at(50).Time); !began || got != time.Duration(c.want)*time.Minute {
			t.Errorf("%s: %v, want %d minutes", name, got, c.want)
		}
	}
}
