package progress

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
)

func podIn(name string, phase v1.PodPhase) *v1.Pod {
	p := &v1.Pod{}
	p.Namespace, p.Name, p.Status.Phase = "default", name, phase
	return p
}

func succeeded(p *v1.Pod) bool { return p.Status.Phase == v1.PodSucceeded }

func TestProgressInLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := New(&out, succeeded)
		waiting := podIn("a", v1.PodPending)
		waiting.Status.Reason = "WaitingForPods"
		waiting.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}
		l.Report(waiting)
		l.Report(podIn("a", v1.PodPending))
		l.Report(podIn("a", v1.PodPending))
		time.Sleep(1500 * time.Millisecond)
		l.Report(podIn("a", v1.PodSucceeded))
		_, _ = l.Write([]byte("a word\n"))
		l.Finish()
		if got, want := out.String(), "   0.0s default/a WaitingForPods\n   0.0s default/a Pending\n   1.5s default/a Succeeded\na word\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// screen returns what a terminal shows of text that moves the cursor up and clears the screen below
// it.
func screen(text string) string {
	var lines []string
	for part := range strings.SplitAfterSeq(text, "\n") {
		for strings.HasPrefix(part, "\x1b[") {
			up := int(part[2] - '0')
			lines = lines[:len(lines)-up]
			part = strings.TrimPrefix(part[4:], "\x1b[J")
		}
		if part != "" {
			lines = append(lines, part)
		}
	}
	return strings.Join(lines, "")
}

func TestProgressOnATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := New(&out, succeeded)
		width, height := 25, 24
		l.plain = false
		l.size = func() (int, int) { return width, height }
		resize := func(w, h int) {
			l.mu.Lock()
			defer l.mu.Unlock()
			width, height = w, h
		}
		stop := make(chan struct{})
		go l.Tick(stop)
		shows := func(want string) {
			t.Helper()
			synctest.Wait()
			l.mu.Lock()
			defer l.mu.Unlock()
			if got := screen(out.String()); got != want {
				t.Errorf("shows\n%swant\n%s", got, want)
			}
		}
		l.Report(podIn("a", v1.PodPending))
		l.Report(podIn("b", v1.PodRunning))
		shows("   0.0s default/a Pending"[:24] + "\n   0.0s default/b Running"[:25] + "\n")
		resize(80, 24)
		time.Sleep(1100 * time.Millisecond)
		l.Report(podIn("a", v1.PodSucceeded))
		_, _ = l.Write([]byte("a word\n"))
		time.Sleep(900 * time.Millisecond)
		shows("a word\n   1.1s default/a Succeeded\n   2.0s default/b Running\n")
		resize(80, 3) // no room for all
		time.Sleep(1010 * time.Millisecond)
		shows("a word\n   3.0s default/b Running\n")
		close(stop)
		synctest.Wait()
		l.Finish()
		_, _ = l.Write([]byte("the end\n"))
		shows("a word\n   3.0s default/b Running\nthe end\n")
	})
}

// pullingPod returns a pod whose container waits for its image.
func pullingPod() *v1.Pod {
	p := podIn("a", v1.PodPending)
	p.Spec.Containers = []v1.Container{{Name: "main", Image: "box:1"}}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}
	return p
}

func TestProgressOfPulls(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			l := New(&out, succeeded)
			if terminal {
				l.plain, l.size = false, func() (int, int) { return 120, 24 }
			}
			l.WatchPulls(func(image string) (pod.Progress, bool) {
				return pod.Progress{Fetched: 30_000_000, Total: 40_000_000, Rate: 1_000_000, Done: 1, Layers: 2}, image == "box:1"
			})
			stop := make(chan struct{})
			go l.Tick(stop)
			l.Report(pullingPod())
			time.Sleep(10_100 * time.Millisecond)
			synctest.Wait()
			close(stop)
			synctest.Wait()
			l.Finish()
			want := "   0.0s default/a ContainerCreating\n  10.0s default/a pulling box:1: 30.0MB of 40.0MB, 1.0MB/s, 1 of 2 layers\n"
			got := out.String()
			if terminal {
				want, got = "  10.1s default/a pulling box:1 [===============     ]  75% 30.0MB of 40.0MB, 1.0MB/s, 1 of 2 layers\n", screen(got)
			}
			if got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

func TestBar(t *testing.T) {
	for want, p := range map[string]pod.Progress{
		"…": {},
		"[                    ]   0% 0B of 100B, 0B/s, 0 of 1 layers": {Total: 100, Layers: 1},
		"[====================] 100% 100B fetched, unpacking":         {Fetched: 100, Total: 100, Done: 1, Layers: 1},
	} {
		if got := bar(p); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestProgressSaysWhatIsWaitedFor: a line says what a pod waits for, and at which attempt it is, without a countdown.
func TestProgressSaysWhatIsWaitedFor(t *testing.T) {
	t.Parallel()
	waits := podIn("a", v1.PodPending)
	waits.Status.Reason, waits.Status.Message = "WaitingForPods", "starts after default/db"
	crashes := podIn("a", v1.PodRunning)
	crashes.Spec.Containers = []v1.Container{{Name: "c"}}
	crashes.Annotations = map[string]string{"podrun.io/next-attempt": time.Now().Add(time.Hour).Format(time.RFC3339)}
	crashes.Status.ContainerStatuses = []v1.ContainerStatus{{
		Name: "c", RestartCount: 2, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}},
	}}
	unmounted := podIn("a", v1.PodPending)
	unmounted.Spec.Containers = []v1.Container{{Name: "c"}}
	unmounted.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{
		Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating", Message: "hostPath /x: does not exist"}}}}
	unmounted.Status.Conditions = []v1.PodCondition{{Type: v1.PodReadyToStartContainers, Status: v1.ConditionFalse, Reason: "FailedMount"}}
	for want, p := range map[string]*v1.Pod{
		"ContainerCreating (c: hostPath /x: does not exist)": unmounted,
		"WaitingForPods (starts after default/db)":           waits,
		"CrashLoopBackOff (c: exit code 3), attempt 3":       crashes,
		"ContainerCreating":                                  pullingPod(),
		"Succeeded":                                          podIn("a", v1.PodSucceeded),
	} {
		if got := stateOf(p); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
