package report

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/result"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
)

// TestLogsOfWhatIsStopped: what a container writes while it is stopped is printed too, although its log
// is removed with the pod. What has ended or stays is printed at once.
func TestLogsOfWhatIsStopped(t *testing.T) {
	t.Parallel()
	const at = "2026-01-02T15:04:05.000000000Z stdout F "
	run := func(name string) *v1.Pod {
		return notDonePod(name, v1.ContainerStatus{Ready: true, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}})
	}
	ended := notDonePod("ended", v1.ContainerStatus{
		State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}}})
	waits := notDonePod("waits", v1.ContainerStatus{
		State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}})
	all := []*v1.Pod{run("stays"), run("stops"), run("stuck"), ended, waits}
	for which, want := range map[string]string{
		"failed": "up of stays;up of ended;|up of stops;flushed stops;up of stuck;flushed stuck;",
		"all":    "up of stays;up of ended;|up of stops;flushed stops;up of stuck;flushed stuck;",
		"none":   "|",
	} {
		for _, read := range []bool{true, false} {
			var out, said strings.Builder
			l := &Logs{Out: &out, ErrOut: &said, Dirs: layout.Dirs{Log: t.TempDir()}, Log: slog.New(slog.DiscardHandler)}
			paths := map[string]string{}
			for _, p := range all { // the log of the pod that has not started is of an earlier run
				paths[p.Name] = l.Dirs.ContainerLog(pod.KeyOf(p), p.UID, "c", 0)
				must(t, os.MkdirAll(filepath.Dir(paths[p.Name]), 0o755))
				must(t, os.WriteFile(paths[p.Name], []byte(at+"up of "+p.Name+"\n"), 0o600))
			}
			stops := map[pod.Key]bool{}
			for _, p := range all[1:] {
				stops[pod.KeyOf(p)] = true
			}
			l.Select(Run{Done: result.Done, TimedOut: true, Pods: all, Stops: stops}, which)
			if read {
				l.Print()
				out.WriteString("|")
			}
			for _, p := range all[1:] {
				f, err := os.OpenFile(paths[p.Name], os.O_APPEND|os.O_WRONLY, 0)
				must(t, err)
				_, err = f.WriteString(at + "flushed " + p.Name + "\n")
				must(t, err)
				must(t, f.Close())
				if p.Name == "stuck" {
					continue // it cannot be removed
				}
				l.Keep(pod.KeyOf(p), p.UID)
				must(t, os.RemoveAll(filepath.Dir(paths[p.Name])))
				l.Keep(pod.KeyOf(p), p.UID)
			}
			l.PrintStopped()
			if !read {
				want = "" // nobody reads: printing would hang again
			}
			if got := strings.ReplaceAll(out.String(), "\n", ";"); got != want {
				t.Errorf("%s: got %q, want %q", which, got, want)
			}
			if says := strings.Contains(said.String(), "default/stops container c was not done: Running\n"); says != (read && which != "none") {
				t.Errorf("%s: said %q", which, said.String())
			}
		}
	}
}

// TestWhyAPodFailed: if a pod as a whole has failed, the lines of its containers name the reason, and if no
// container has failed, a line of its own.
func TestWhyAPodFailed(t *testing.T) {
	t.Parallel()
	for code, want := range map[int32]string{
		137: "default/late container c failed: Error, exit code 137 (DeadlineExceeded: too long)\n",
		0:   "default/late failed: DeadlineExceeded: too long\n",
	} {
		p := notDonePod("late", v1.ContainerStatus{
			State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: "Error"}}})
		p.Status.Phase, p.Status.Reason, p.Status.Message = v1.PodFailed, "DeadlineExceeded", "too long"
		var out, said strings.Builder
		l := &Logs{Out: &out, ErrOut: &said, Dirs: layout.Dirs{Log: t.TempDir()}, Log: slog.New(slog.DiscardHandler)}
		l.Select(Run{Done: result.Done, Pods: []*v1.Pod{p}}, "failed")
		l.Print()
		l.PrintStopped()
		if said.String() != want {
			t.Errorf("got %q, want %q", said.String(), want)
		}
	}
}

// TestLogsHaveNames: each log of --logs all has a line with its container before it, unless it is the only one.
func TestLogsHaveNames(t *testing.T) {
	t.Parallel()
	ended := func(name string) *v1.Pod {
		p := notDonePod(name, v1.ContainerStatus{
			State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Completed"}}})
		p.Status.Phase = v1.PodSucceeded
		return p
	}
	runs := notDonePod("runs", v1.ContainerStatus{Ready: true, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}})
	runs.Spec.RestartPolicy = v1.RestartPolicyAlways
	for want, pods := range map[string][]*v1.Pod{
		"": {ended("a")},
		"default/a container c: Completed, exit code 0\ndefault/runs container c: Running\n": {ended("a"), runs},
	} {
		var out, said strings.Builder
		l := &Logs{Out: &out, ErrOut: &said, Dirs: layout.Dirs{Log: t.TempDir()}, Log: slog.New(slog.DiscardHandler)}
		l.Select(Run{Done: func(*v1.Pod) bool { return true }, Pods: pods}, "all")
		l.Print()
		if said.String() != want {
			t.Errorf("got %q, want %q", said.String(), want)
		}
	}
}
