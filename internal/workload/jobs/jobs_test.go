package jobs

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
)

// number is a pointer to n.
func number(n int32) *int32 { return &n }

// model is a Job and its pods, as its tests drive them.
type model struct {
	t       *testing.T
	job     *batchv1.Job
	history *History
	pods    map[string]Observed
	now     time.Time
	// taken are names of other pods.
	taken string
}

func newModel(t *testing.T, change func(*batchv1.JobSpec)) *model {
	never, mode := false, batchv1.NonIndexedCompletion
	job := &batchv1.Job{}
	job.Name = "work"
	job.Spec = batchv1.JobSpec{
		Parallelism: number(1), Completions: number(1), BackoffLimit: number(6), CompletionMode: &mode, Suspend: &never,
	}
	job.Spec.Template.Spec.RestartPolicy = v1.RestartPolicyNever
	change(&job.Spec)
	return &model{t: t, job: job, pods: map[string]Observed{}, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
}

func (m *model) decide() Plan {
	taken := func(name string) bool { return has(m.taken, name) }
	return Decide(Input{Job: m.job, Document: "d", History: m.history, Pods: m.pods, Reserved: taken, Now: m.now})
}

// step lets time pass and pods change, and compares what is then decided. A change is "POD succeeded", "POD failed CODE",
// "POD interrupted", "POD evicted", "POD restarted N" or "POD gone". What Decide wants to exist exists from then on.
func (m *model) step(after time.Duration, changes, want string) {
	m.t.Helper()
	m.now = m.now.Add(after)
	for change := range strings.SplitSeq(changes, ", ") {
		words := strings.Fields(change)
		if len(words) == 0 {
			continue
		}
		p := &v1.Pod{}
		p.Namespace, p.Name, p.Status.Phase = "default", words[0], v1.PodRunning
		status := v1.ContainerStatus{Name: "c"}
		switch words[1] {
		case "gone":
			delete(m.pods, words[0])
			continue
		case "succeeded":
			p.Status.Phase = v1.PodSucceeded
		case "failed":
			p.Status.Phase = v1.PodFailed
			code, _ := strconv.Atoi(words[2])
			status.State.Terminated = &v1.ContainerStateTerminated{ExitCode: int32(code)}
		case "evicted":
			p.Status.Phase, p.Status.Reason = v1.PodFailed, "Evicted"
		case "interrupted": // it exits with code 0
			p.Status.Phase, p.Status.Reason = v1.PodFailed, "Terminated"
			p.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}}
			status.State.Terminated = &v1.ContainerStateTerminated{}
		case "restarted":
			n, _ := strconv.Atoi(words[2])
			status.RestartCount = int32(n)
		}
		p.Status.ContainerStatuses = []v1.ContainerStatus{status}
		m.pods[words[0]] = Observed{Run: m.history.Run, Pod: p, Ended: p.Status.Phase != v1.PodRunning}
	}
	plan := m.decide()
	text, err := json.Marshal(plan.History)
	if err != nil {
		m.t.Fatal(err)
	}
	m.history = &History{}
	if err := json.Unmarshal(text, m.history); err != nil { // as if podrun was started again
		m.t.Fatal(err)
	}
	var got []string
	for _, p := range plan.Pods {
		if _, exists := m.pods[p.Name]; !exists {
			m.pods[p.Name] = Observed{Run: m.history.Run}
		}
		if p.Outcome == "" {
			got = append(got, p.Name)
		}
	}
	s := m.history.Status
	got = append(got, fmt.Sprintf("%d/%d", s.Succeeded, s.Failed))
	if s.CompletedIndexes != "" {
		got = append(got, "done "+s.CompletedIndexes)
	}
	if s.FailedIndexes != nil && *s.FailedIndexes != "" {
		got = append(got, "bad "+*s.FailedIndexes)
	}
	for _, c := range s.Conditions {
		if c.Status == v1.ConditionTrue {
			got = append(got, string(c.Type)+"="+c.Reason)
		}
	}
	if !plan.Next.IsZero() {
		got = append(got, "next "+plan.Next.Sub(m.now).Round(time.Second).String())
	}
	if text := strings.Join(got, " "); text != want {
		m.t.Errorf("after %q: %s\nwant %s", changes, text, want)
	}
}

func indexed(s *batchv1.JobSpec) {
	mode := batchv1.IndexedCompletion
	s.CompletionMode = &mode
}

func TestCompletions(t *testing.T) {
	t.Parallel()
	m := newModel(t, func(s *batchv1.JobSpec) { s.Completions, s.Parallelism = number(3), number(2) })
	m.step(0, "", "work-0 work-1 0/0")
	m.step(time.Second, "work-1 succeeded", "work-0 work-2 1/0")
	m.step(time.Second, "work-2 succeeded", "work-0 2/0")
	m.step(time.Second, "work-0 succeeded", "3/0 SuccessCriteriaMet=CompletionsReached Complete=CompletionsReached")
	m.step(time.Hour, "", "3/0 SuccessCriteriaMet=CompletionsReached Complete=CompletionsReached")
}

// TestWorkQueue: without completions the Job is complete when one pod has succeeded and none runs.
func TestWorkQueue(t *testing.T) {
	t.Parallel()
	m := newModel(t, func(s *batchv1.JobSpec) { s.Completions, s.Parallelism = nil, number(3) })
	m.step(0, "", "work-0 work-1 work-2 0/0")
	m.step(time.Second, "work-1 succeeded", "work-0 work-2 1/0")
	m.step(time.Second, "work-0 failed 1", "work-2 1/1")
	m.step(time.Second, "work-2 succeeded", "2/1 SuccessCriteriaMet=CompletionsReached Complete=CompletionsReached")
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	m := newModel(t, func(s *batchv1.JobSpec) { s.BackoffLimit = number(2) })
	m.step(0, "", "work-0 0/0")
	m.step(time.Second, "work-0 failed 1", "0/1 next 10s")
	m.step(-time.Hour, "", "0/1 next 10s") // the clock is set back
	m.step(10*time.Second, "", "work-1 0/1")
	m.step(time.Second, "work-1 failed 1", "0/2 next 20s")
	m.step(20*time.Second, "", "work-2 0/2")
	m.step(time.Second, "work-2 failed 1", "0/3 FailureTarget=BackoffLimitExceeded Failed=BackoffLimitExceeded")
	for n, want := range map[int]time.Duration{1: 10 * time.Second, 4: 80 * time.Second, 6: 320 * time.Second, 7: maxBackoff, 60: maxBackoff} {
		d := decision{Input: Input{Now: m.now}}
		if got := d.until(Failures{Failed: n, Last: m.now}).Sub(m.now); got != want {
			t.Errorf("after %d failures: %s, want %s", n, got, want)
		}
	}
}

func TestRestartsInPlace(t *testing.T) {
	t.Parallel()
	m := newModel(t, func(s *batchv1.JobSpec) {
		s.BackoffLimit, s.Template.Spec.RestartPolicy = number(2), v1.RestartPolicyOnFailure
	})
	m.step(0, "", "work-0 0/0")
	m.step(time.Second, "work-0 restarted 1", "work-0 0/0")
	m.step(time.Second, "work-0 restarted 2", "0/0 FailureTarget=BackoffLimitExceeded")
	m.step(time.Second, "work-0 gone", "0/1 FailureTarget=BackoffLimitExceeded Failed=BackoffLimitExceeded")
}

func TestActiveDeadline(t *testing.T) {
	t.Parallel()
	m := newModel(t, func(s *batchv1.JobSpec) { s.ActiveDeadlineSeconds = new(int64(60)) })
	m.step(0, "", "work-0 0/0 next 1m0s")
	m.step(30*time.Second, "work-0 failed 1", "0/1 next 10s")
	m.step(10*time.Second, "", "work-1 0/1 next 20s")
	m.step(20*time.Second, "", "0/1 FailureTarget=DeadlineExceeded")
	m.step(time.Second, "work-1 gone", "0/2 FailureTarget=DeadlineExceeded Failed=DeadlineExceeded")

	m = newModel(t, func(s *batchv1.JobSpec) { s.ActiveDeadlineSeconds = new(int64(math.MaxInt64)) }) // longer than a time can be
	m.step(0, "", "work-0 0/0 next 2562047h47m16s")
	m.step(time.Hour, "", "work-0 0/0 next 2562046h47m16s")
}

func TestIndexed(t *testing.T) {
	t.Parallel()
	m := newModel(t, func(s *batchv1.JobSpec) {
		indexed(s)
		s.Completions, s.Parallelism = number(4), number(2)
	})
	m.step(0, "", "work-0 work-1 0/0")
	m.step(time.Second, "work-1 succeeded", "work-0 work-2 1/0 done 1")
	m.step(time.Second, "work-0 failed 1", "work-2 1/1 done 1 next 10s")
	m.step(time.Second, "work-2 succeeded", "work-0-r1 work-3 2/1 done 1,2") // a success ends the back-off
	m.step(time.Second, "work-3 succeeded", "work-0-r1 3/1 done 1-3")
	m.step(time.Second, "work-0-r1 succeeded", "4/1 done 0-3 SuccessCriteriaMet=CompletionsReached Complete=CompletionsReached")
}

func TestBackoffPerIndex(t *testing.T) {
	t.Parallel()
	m := newModel(t, func(s *batchv1.JobSpec) {
		indexed(s)
		s.Completions, s.Parallelism, s.BackoffLimitPerIndex, s.BackoffLimit = number(3), number(3), number(1), number(1<<30)
	})
	m.step(0, "", "work-0 work-1 work-2 0/0")
	m.step(time.Second, "work-0 failed 1", "work-1 work-2 0/1 next 10s")
	m.step(time.Second, "work-1 failed 1", "work-2 0/2 next 9s")
	m.step(9*time.Second, "", "work-2 work-0-r1 0/2 next 1s")
	m.step(time.Second, "work-0-r1 failed 1, work-2 succeeded", "work-1-r1 1/3 done 2 bad 0")
	m.step(time.Second, "work-1-r1 succeeded", "2/3 done 1,2 bad 0 FailureTarget=FailedIndexes Failed=FailedIndexes")
	m = newModel(t, func(s *batchv1.JobSpec) {
		indexed(s)
		s.Completions, s.Parallelism, s.BackoffLimitPerIndex, s.MaxFailedIndexes = number(5), number(2), number(0), number(1)
		s.BackoffLimit = number(1 << 30)
	})
	m.step(0, "", "work-0 work-1 0/0")
	m.step(time.Second, "work-0 failed 1", "work-1 work-2 0/1 bad 0")
	m.step(time.Second, "work-1 failed 1", "0/2 bad 0,1 FailureTarget=MaxFailedIndexesExceeded")
	m.step(time.Second, "work-2 gone", "0/3 bad 0,1 FailureTarget=MaxFailedIndexesExceeded Failed=MaxFailedIndexesExceeded")
}

func TestSuccessPolicy(t *testing.T) {
	t.Parallel()
	m := newModel(t, func(s *batchv1.JobSpec) {
		indexed(s)
		some := "0,2-3"
		s.Completions, s.Parallelism = number(4), number(4)
		s.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: &some, SucceededCount: number(2)}}}
	})
	m.step(0, "", "work-0 work-1 work-2 work-3 0/0")
	m.step(time.Second, "work-1 succeeded, work-0 succeeded", "work-2 work-3 2/0 done 0,1")
	m.step(time.Second, "work-3 succeeded", "3/0 done 0,1,3 SuccessCriteriaMet=SuccessPolicy")
	m.step(time.Second, "work-2 gone", "3/0 done 0,1,3 SuccessCriteriaMet=SuccessPolicy Complete=SuccessPolicy")
}

func TestPodFailurePolicy(t *testing.T) {
	t.Parallel()
	rule := func(action batchv1.PodFailurePolicyAction, codes ...int32) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: codes,
		}}
	}
	disrupted := batchv1.PodFailurePolicyRule{
		Action:          batchv1.PodFailurePolicyActionIgnore,
		OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}},
	}
	policy := func(s *batchv1.JobSpec) {
		s.BackoffLimit = number(1)
		s.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
			rule(batchv1.PodFailurePolicyActionFailJob, 3), rule(batchv1.PodFailurePolicyActionFailIndex, 7), disrupted,
			rule(batchv1.PodFailurePolicyActionIgnore, 5), rule(batchv1.PodFailurePolicyActionCount, 4),
		}}
	}
	m := newModel(t, policy)
	m.step(0, "", "work-0 0/0")
	m.step(time.Second, "work-0 interrupted", "0/0 next 10s")
	m.step(10*time.Second, "", "work-1 0/0")
	m.step(time.Second, "work-1 failed 5", "0/0 next 20s")
	m.step(20*time.Second, "", "work-2 0/0")
	m.step(time.Second, "work-2 failed 4", "0/1 next 40s")
	m.step(40*time.Second, "", "work-3 0/1")
	m.step(time.Second, "work-3 failed 3", "0/2 FailureTarget=PodFailurePolicy Failed=PodFailurePolicy")
	want := "Container c for pod default/work-3 failed with exit code 3 matching FailJob rule at index 0"
	if c := Finished(&m.history.Status); c == nil || c.Message != want {
		t.Errorf("%+v, want %s", c, want)
	}
	m = newModel(t, func(s *batchv1.JobSpec) {
		policy(s)
		indexed(s)
		s.Completions, s.Parallelism, s.BackoffLimitPerIndex, s.BackoffLimit = number(2), number(2), number(5), number(1<<30)
	})
	m.step(0, "", "work-0 work-1 0/0")
	m.step(time.Second, "work-0 failed 7", "work-1 0/1 bad 0")
	m.step(time.Second, "work-1 succeeded", "1/1 done 1 bad 0 FailureTarget=FailedIndexes Failed=FailedIndexes")
}

// TestDisruptions: a pod that a shutdown of the machine has interrupted has failed, even if its container then returned
// 0, and another one takes its place. What exceeds its own storage limit is evicted but not disrupted, as with the kubelet:
// it counts.
func TestDisruptions(t *testing.T) {
	t.Parallel()
	m := newModel(t, func(s *batchv1.JobSpec) { s.BackoffLimit = number(1) })
	m.step(0, "", "work-0 0/0")
	m.step(time.Second, "work-0 interrupted", "0/1 next 10s")
	m.step(10*time.Second, "", "work-1 0/1")
	m.step(time.Second, "work-1 interrupted", "0/2 FailureTarget=BackoffLimitExceeded Failed=BackoffLimitExceeded")
	m = newModel(t, func(s *batchv1.JobSpec) {
		s.BackoffLimit = number(0)
		s.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action:          batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}},
		}}}
	})
	m.step(0, "", "work-0 0/0")
	m.step(time.Second, "work-0 interrupted", "0/0 next 10s")
	m.step(10*time.Second, "", "work-1 0/0")
	m.step(time.Second, "work-1 evicted", "0/1 FailureTarget=BackoffLimitExceeded Failed=BackoffLimitExceeded")
}

// TestSuspend: the pods of a suspended Job end and do not count; its successor waits until they are gone.
func TestSuspend(t *testing.T) {
	t.Parallel()
	m := newModel(t, indexed)
	suspend := func(is bool) { m.job.Spec.Suspend = &is }
	suspend(true)
	m.step(0, "", "0/0 Suspended=JobSuspended")
	suspend(false)
	m.step(time.Second, "", "work-0 0/0")
	suspend(true)
	m.step(time.Second, "", "0/0 Suspended=JobSuspended")
	suspend(false)
	m.step(time.Second, "", "0/0")
	m.step(time.Second, "work-0 gone", "work-0-r1 0/0")
	m.step(time.Second, "work-0-r1 succeeded", "1/0 done 0 SuccessCriteriaMet=CompletionsReached Complete=CompletionsReached")
}

func TestFewerAtOnce(t *testing.T) {
	t.Parallel()
	m := newModel(t, func(s *batchv1.JobSpec) { s.Completions, s.Parallelism = number(3), number(3) })
	m.step(0, "", "work-0 work-1 work-2 0/0")
	m.job.Spec.Parallelism = number(1)
	m.step(time.Second, "", "work-0 0/0")
	m.step(time.Second, "work-0 succeeded", "1/0") // the others have not ended
	m.step(time.Second, "work-1 gone, work-2 gone", "work-3 1/0")
}

// TestRuns: what makes another run, and that it waits until the pods of the last one are gone.
func TestRuns(t *testing.T) {
	t.Parallel()
	m := newModel(t, func(*batchv1.JobSpec) {})
	m.step(0, "", "work-0 0/0")
	in := Input{Job: m.job, Document: "d", History: m.history, Pods: m.pods, Now: m.now.Add(time.Second), Boot: "b"}
	if got := Decide(in).History.Run; got != m.history.Run {
		t.Errorf("another boot is another run: %s, %s", got, m.history.Run)
	}
	in.PerBoot = true
	if got := Decide(in); got.History.Run == m.history.Run || len(got.Pods) != 0 {
		t.Errorf("per boot: %+v", got)
	}
	in.PerBoot, in.Document, in.Former = false, "new", "d"
	kept := Decide(in)
	if kept.History.Run != m.history.Run || kept.History.Document != "new" || m.history.Document != "d" {
		t.Errorf("what an earlier podrun has recorded: %+v", kept.History)
	}
	in.History, in.Former = kept.History, "another file"
	if got := Decide(in).History.Run; got != m.history.Run {
		t.Errorf("another file is another run: %s, %s", got, m.history.Run)
	}
	in.History, in.Document, in.Former = m.history, "e", ""
	got := Decide(in)
	if got.History.Run == m.history.Run || len(got.Pods) != 0 {
		t.Errorf("another document: %+v", got)
	}
	in.History, in.Pods = got.History, nil
	if got := Decide(in); len(got.Pods) != 1 {
		t.Errorf("when the pods of the last run are gone: %+v", got)
	}
}

// TestEndedIsNotStartedAgain: a pod whose end is recorded is wanted only as long as it is known to have ended.
func TestEndedIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	m := newModel(t, func(s *batchv1.JobSpec) { s.Completions = number(2) })
	m.step(0, "", "work-0 0/0")
	m.step(0, "work-0 succeeded", "work-1 1/0")
	for name, test := range map[string]struct {
		pods map[string]Observed
		want int
	}{
		"its status":                {map[string]Observed{"work-0": m.pods["work-0"]}, 2},
		"its checkpoint":            {map[string]Observed{"work-0": {Run: m.history.Run, Ended: true}}, 2},
		"an older checkpoint of it": {map[string]Observed{"work-0": {Run: m.history.Run}}, 1},
		"nothing of it":             {nil, 1},
	} {
		plan := Decide(Input{Job: m.job, Document: "d", History: m.history, Pods: test.pods, Now: m.now})
		if len(plan.Pods) != test.want {
			t.Errorf("%s: %+v", name, plan.Pods)
		}
	}
}

// TestLostEndStaysDropped: a pod whose end was recorded for the Job and not for itself is removed, and not wanted again
// when its removal shows what became of it: it would start again.
func TestLostEndStaysDropped(t *testing.T) {
	t.Parallel()
	m := newModel(t, func(s *batchv1.JobSpec) { s.Completions = number(2) })
	m.step(0, "", "work-0 0/0")
	ended := Observed{Run: m.history.Run, Pod: &v1.Pod{Status: v1.PodStatus{Phase: v1.PodSucceeded}}}
	m.pods["work-0"] = ended
	m.step(0, "", "work-0 0/0") // not in its checkpoint yet: it does not count
	ended.Ended = true
	m.pods["work-0"] = ended
	m.step(0, "", "work-1 1/0")
	m.pods["work-0"] = Observed{Run: m.history.Run}
	m.step(0, "", "work-1 1/0")
	m.pods["work-0"] = ended
	plan := Decide(Input{Job: m.job, Document: "d", History: m.history, Pods: m.pods, Now: m.now})
	if len(plan.Pods) != 1 || plan.Pods[0].Name != "work-1" || plan.History.Status.Succeeded != 1 {
		t.Errorf("%+v, %+v", plan.Pods, plan.History.Status)
	}
}

func TestExpires(t *testing.T) {
	t.Parallel()
	m := newModel(t, func(s *batchv1.JobSpec) { s.TTLSecondsAfterFinished = number(60) })
	m.step(0, "", "work-0 0/0")
	const complete = "1/0 SuccessCriteriaMet=CompletionsReached Complete=CompletionsReached"
	m.step(0, "work-0 succeeded", complete+" next 1m0s")
	if len(m.history.Tries) != 1 {
		t.Errorf("%+v", m.history)
	}
	m.step(time.Minute, "", complete)
	if len(m.history.Tries) != 0 || !m.history.Expired {
		t.Errorf("%+v", m.history)
	}
}

func TestIndexText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "0", "1,2", "0-2,5,7,8,10-13"} {
		if got := parse(text).String(); got != text {
			t.Errorf("%q: %q", text, got)
		}
	}
}
