package report

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podrun.io/podrun/internal/agent/result"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// notDonePod returns a job with one container that has the status s.
func notDonePod(name string, s v1.ContainerStatus) *v1.Pod {
	s.Name = "c"
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: pod.UID(name)},
		Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyOnFailure, Containers: []v1.Container{{Name: "c"}}},
		Status:     v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{s}},
	}
}

// notDone returns the result of a run with a pod that crashes again and again, one that runs, one
// that cannot start and one that has succeeded.
func notDone() Run {
	failed := func(code int32, reason string) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: reason}}
	}
	waiting := func(reason, message string) v1.ContainerState {
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	good := notDonePod("good", v1.ContainerStatus{State: failed(0, "Completed")})
	good.Status.Phase = v1.PodSucceeded
	return Run{Done: result.Done, Pods: []*v1.Pod{
		notDonePod("crashes", v1.ContainerStatus{
			State: waiting("CrashLoopBackOff", ""), RestartCount: 2, LastTerminationState: failed(5, "Error")}),
		good,
		notDonePod("killed", v1.ContainerStatus{
			State: waiting("CrashLoopBackOff", ""), RestartCount: 1, LastTerminationState: failed(137, "OOMKilled")}),
		notDonePod("pulls", v1.ContainerStatus{State: waiting("ImagePullBackOff", "no such image")}),
		notDonePod("runs", v1.ContainerStatus{Ready: true, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}),
	}}
}

// TestReportOfWhatIsNotDone: the report says how the last instance of a container ended, and
// whether the run timed out or was interrupted.
func TestReportOfWhatIsNotDone(t *testing.T) {
	t.Parallel()
	r := notDone()
	r.TimedOut = true
	suite := junitOf(r).Suites[0]
	want := []string{
		"timed out, not done: CrashLoopBackOff (exit code 5)", "", "timed out, not done: CrashLoopBackOff (OOMKilled, exit code 137)",
		"timed out, not done: ImagePullBackOff (c: no such image)", "timed out, not done: Running",
	}
	for i, c := range suite.Cases {
		if c.Error == nil && want[i] != "" || c.Error != nil && c.Error.Message != want[i] {
			t.Errorf("%s: got %+v, want %q", c.Name, c.Error, want[i])
		}
	}
	for i, want := range map[int]string{0: "c: Error, exit code 5", 3: "c: no such image"} {
		if got := suite.Cases[i].Error; got == nil || got.Text != want {
			t.Errorf("%d: got %+v, want the text %q", i, got, want)
		}
	}
	r.TimedOut, r.Interrupted = false, true
	if got := junitOf(r).Suites[0].Cases[4].Error; got == nil || got.Message != "interrupted, not done: Running" {
		t.Errorf("of an interrupt: %+v", got)
	}
}

// TestOnceSaysWhatIsNotDone: the last line of once names the pods that are not done, with their
// state.
func TestOnceSaysWhatIsNotDone(t *testing.T) {
	t.Parallel()
	const states = "default/crashes CrashLoopBackOff (exit code 5), default/killed CrashLoopBackOff (OOMKilled, exit code 137), " +
		"default/pulls ImagePullBackOff (c: no such image), default/runs Running"
	late, stopped, left, known := notDone(), notDone(), notDone(), Run{Interrupted: true}
	late.TimedOut, stopped.Interrupted, stopped.Removed, left.Interrupted = true, true, true, true
	for _, c := range []struct {
		result Run
		want   string
	}{
		{late, "not done within 1m0s: " + states},
		{stopped, "interrupted; the pods were stopped and removed; not done: " + states},
		{left, "interrupted; not done: " + states},
		{known, "interrupted while cleaning up"},
	} {
		if got := c.result.Message(time.Minute); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// TestLogsOfWhatIsNotDone: by default, once prints the logs of containers that are not done, like
// those of failed containers.
func TestLogsOfWhatIsNotDone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var out, said strings.Builder
	l := &Logs{Out: &out, ErrOut: &said, Dirs: layout.Dirs{Log: dir}, Log: slog.New(slog.DiscardHandler)}
	r := notDone()
	for _, p := range r.Pods {
		s := p.Status.ContainerStatuses[0]
		path := l.Dirs.ContainerLog(pod.KeyOf(p), p.UID, s.Name, int(s.RestartCount))
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte("2026-01-02T15:04:05.000000000Z stdout F of "+p.Name+"\n"), 0o600))
	}
	l.Select(r, "failed")
	l.Print()
	if want := "of crashes\nof killed\nof runs\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	for _, want := range []string{
		"default/crashes container c was not done: CrashLoopBackOff (exit code 5)\n",
		"default/runs container c was not done: Running\n",
	} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("said %q, not %q", said.String(), want)
		}
	}
}

// TestWhyAServiceIsNotReady: the state of a service that is not done names the probe that has not
// succeeded yet.
func TestWhyAServiceIsNotReady(t *testing.T) {
	t.Parallel()
	p := notDonePod("db", v1.ContainerStatus{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}})
	p.Spec.RestartPolicy = v1.RestartPolicyAlways
	p.Spec.Containers[0].ReadinessProbe = &v1.Probe{}
	if got := lastState(p); got != "Running (c: its readiness probe does not succeed)" {
		t.Error(got)
	}
}

// TestWhatIsNotDoneSaysWhy: the state of a pod that is not done is the reason of the whole pod, if
// it has one.
func TestWhatIsNotDoneSaysWhy(t *testing.T) {
	t.Parallel()
	podIn := func(name string, phase v1.PodPhase) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Status:     v1.PodStatus{Phase: phase},
		}
	}
	waits := podIn("big", v1.PodPending)
	waits.Status.Reason = "OutOfmemory"
	r := Run{Pods: []*v1.Pod{waits, podIn("done", v1.PodSucceeded)}, Done: result.Done}
	if got := r.unfinished(); got != "default/big OutOfmemory" {
		t.Error(got)
	}
}

// TestWritable: a report file that cannot be written is an error before the pods run.
func TestWritable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, path := range []string{file, filepath.Join(dir, "new"), "new", os.DevNull} {
		must(t, Writable(path))
	}
	for _, path := range []string{dir, filepath.Join(file, "x"), filepath.Join(dir, "absent", "x"), "/proc/new/x"} {
		if Writable(path) == nil {
			t.Errorf("%s is taken for a file that can be written", path)
		}
	}
}
