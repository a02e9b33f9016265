package day

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(s int) metav1.Time { return metav1.NewTime(begin.Add(time.Duration(s) * time.Second)) }

func running(since int, ready bool) v1.ContainerStatus {
	return v1.ContainerStatus{Name: "c", Ready: ready, State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: at(since)}}}
}

func waiting(reason string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: "c", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}}
}

func terminated(code int32, reason string, from, to int) *v1.ContainerStateTerminated {
	return &v1.ContainerStateTerminated{ExitCode: code, Reason: reason, StartedAt: at(from), FinishedAt: at(to), ContainerID: fmt.Sprint(from)}
}

func after(s v1.ContainerStatus, restarts int32, last *v1.ContainerStateTerminated) v1.ContainerStatus {
	s.RestartCount, s.LastTerminationState.Terminated = restarts, last
	return s
}

func over(t *v1.ContainerStateTerminated) v1.ContainerStatus {
	return v1.ContainerStatus{Name: "c", State: v1.ContainerState{Terminated: t}}
}

func of(uid string, s v1.ContainerStatus) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: pod.UID(uid), Annotations: map[string]string{}}}
	p.Status.ContainerStatuses = []v1.ContainerStatus{s}
	return p
}

// text returns what is kept, in seconds since begin.
func text(p Pod) string {
	var out []string
	seconds := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return fmt.Sprint(int(t.Sub(begin).Seconds()))
	}
	for _, c := range p.Containers {
		for _, b := range c.Bars {
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s-%s %s", b.State, seconds(b.Begin), seconds(b.End), b.Detail)))
		}
	}
	for _, m := range p.Marks {
		out = append(out, fmt.Sprintf("%s@%s: %s", m.Kind, seconds(m.At), m.Text))
	}
	return strings.Join(out, "\n")
}

func TestObserve(t *testing.T) {
	t.Parallel()
	rolledBack := of("2", running(5, true))
	rolledBack.Annotations[manifest.AnnotationRolledBack] = "not healthy"
	config := of("1", running(5, true))
	config.Annotations[manifest.AnnotationConfig] = "other"
	edited := of("2", running(8, true))
	edited.Spec.NodeName, edited.Spec.HostNetwork = "n", true
	type step struct {
		at int
		p  *v1.Pod
	}
	for name, c := range map[string]struct {
		steps []step
		want  string
	}{
		"a start": {
			[]step{{0, of("1", waiting("ContainerCreating"))}, {3, of("1", running(2, false))}, {9, of("1", running(2, true))}, {10, of("1", running(2, true))}},
			"waiting 0-2 ContainerCreating\nnot-ready 2-9\nrunning 9-",
		},
		"probes fail for a time": {
			[]step{{0, of("1", running(0, true))}, {5, of("1", running(0, false))}, {7, of("1", running(0, true))}},
			"running 0-5\nnot-ready 5-7\nrunning 7-",
		},
		"restarts": {
			[]step{
				{1, of("1", running(1, true))}, {6, of("1", after(running(5, true), 1, terminated(2, "Error", 1, 4)))},
				{8, of("1", after(waiting("CrashLoopBackOff"), 1, terminated(2, "Error", 5, 7)))},
				{20, of("1", after(running(19, true), 2, terminated(2, "Error", 5, 7)))},
			},
			"running 1-4\nrunning 5-7\nwaiting 7-19 CrashLoopBackOff\nrunning 19-\n" +
				"restart@4: c: Error, exit code 2; started again, restart 1\nexit@7: c: Error, exit code 2\nrestart@19: c has started again, restart 2",
		},
		"other reasons of waiting": {
			[]step{{1, of("1", after(waiting("CrashLoopBackOff"), 0, terminated(1, "", 0, 1)))}, {5, of("1", after(waiting("ErrImagePull"), 0, terminated(1, "", 0, 1)))}},
			"running 0-1\nwaiting 1-5 CrashLoopBackOff\nwaiting 5- ErrImagePull\nexit@1: c: exit code 1",
		},
		"too much memory, and again": {
			[]step{
				{1, of("1", running(1, true))}, {5, of("1", over(terminated(137, "OOMKilled", 1, 4)))},
				{7, of("1", after(running(6, true), 1, terminated(137, "OOMKilled", 1, 4)))},
			},
			"running 1-4\nfailed 4-6 OOMKilled, exit code 137\nrunning 6-\n" +
				"oom@4: c: OOMKilled, exit code 137\nrestart@6: c has started again, restart 1",
		},
		"a job that ends": {
			[]step{{1, of("1", running(1, true))}, {5, of("1", over(terminated(0, "Completed", 1, 4)))}, {7, of("1", over(terminated(0, "Completed", 1, 4)))}},
			"running 1-4\nended 4- Completed, exit code 0\nexit@4: c: Completed, exit code 0",
		},
		"podrun starts again": {
			[]step{{30, of("1", after(running(9, true), 3, terminated(1, "Error", 2, 8)))}},
			"running 2-8\nrunning 9-\nrestart@8: c: Error, exit code 1; started again, restart 3",
		},
		"podrun starts after the end": {
			[]step{{30, of("1", over(terminated(1, "Error", 2, 8)))}},
			"running 2-8\nfailed 8- Error, exit code 1\nexit@8: c: Error, exit code 1",
		},
		"edits": {
			[]step{{5, of("1", running(5, true))}, {6, config}, {9, edited}},
			"running 5-8\nrunning 8-\nedit@6: The manifest was edited, or what it refers to.\nedit@9: spec.hostNetwork: true instead of none, and 1 more",
		},
		"a roll-back": {
			[]step{{1, of("1", running(1, true))}, {6, rolledBack}, {7, rolledBack}},
			"running 1-5\nrunning 5-\nroll-back@6: not healthy",
		},
		"the clock is set back": {
			[]step{{10, of("1", waiting("A"))}, {5, of("1", waiting("B"))}},
			"waiting 10-10 A\nwaiting 5- B",
		},
	} {
		r := New()
		for _, s := range c.steps {
			r.Observe(s.p, at(s.at).Time)
		}
		if got := text(r.Of(pod.Key{Namespace: "default", Name: "web"})); got != c.want {
			t.Errorf("%s:\n%s\nwant:\n%s", name, got, c.want)
		}
	}
}

// TestBounds: what is kept has bounds in number, in bytes and in time, and nothing is kept of a pod that is gone.
func TestBounds(t *testing.T) {
	t.Parallel()
	r, key := New(), pod.Key{Namespace: "default", Name: "web"}
	for i := range 1000 {
		r.Observe(of(fmt.Sprint(i), waiting(strings.Repeat("é", maxText)+fmt.Sprint(i%2))), at(i).Time)
		r.Observe(of(fmt.Sprint(i), running(i, i%2 == 0)), at(i).Time)
	}
	p := r.Of(key)
	if b := p.Containers[0].Bars; len(b) != maxBars || len(p.Marks) != maxMarks || b[maxBars-1].Begin.Before(at(999).Time) {
		t.Errorf("%d bars, %d marks", len(b), len(p.Marks))
	}
	if i := slices.IndexFunc(p.Containers[0].Bars, func(b Bar) bool { return len(b.Detail) > maxText+3 }); i >= 0 {
		t.Errorf("a detail of %d bytes", len(p.Containers[0].Bars[i].Detail))
	}
	r.Observe(of("999", running(999, true)), begin.Add(Kept+time.Hour))
	if got := text(r.Of(key)); got != "not-ready 999-90000\nrunning 90000-" {
		t.Error(got)
	}
	r.Gone(key)
	if p := r.Of(key); len(p.Containers)+len(p.Marks)+len(r.pods) != 0 {
		t.Error(p)
	}
}
