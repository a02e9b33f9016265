package report

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/agent/result"
	"podrun.io/podrun/internal/checkpoint/layout"
	"podrun.io/podrun/internal/pod"
)

// TestReportOfWhatIsStopped: what a container writes while it is stopped is in the report, as output and as text of the
// error, whether its log stays or is removed. Until then the report has the results; it loses nothing of them: no log
// and no report of a container that has been removed since.
func TestReportOfWhatIsStopped(t *testing.T) {
	t.Parallel()
	const at = "2026-01-02T15:04:05.000000000Z stdout F "
	run := func(name string) *v1.Pod {
		return ofManifest(notDonePod(name, v1.ContainerStatus{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}), "a.yaml")
	}
	ended := ofManifest(notDonePod("ended", v1.ContainerStatus{
		State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Completed"}}}), "a.yaml")
	ended.Status.Phase = v1.PodSucceeded
	ended.Spec.Volumes = []v1.Volume{{Name: "out", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	ended.Annotations[pod.AnnotationJUnit] = "out:r.xml"
	all := []*v1.Pod{ended, run("remains"), run("removed"), run("stays")}
	root := t.TempDir()
	l := &Logs{Dirs: layout.Dirs{Log: filepath.Join(root, "log"), Root: root}, Log: slog.New(slog.DiscardHandler)}
	volume := l.Dirs.Revision(ended.UID).EmptyDir("out")
	must(t, os.MkdirAll(volume, 0o755))
	must(t, os.WriteFile(filepath.Join(volume, "r.xml"), []byte(`<testsuite name="own"><testcase name="x"/></testsuite>`), 0o600))
	write := func(p *v1.Pod, text string) string {
		path := l.Dirs.ContainerLog(pod.KeyOf(p), p.UID, "c", 0)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		must(t, err)
		_, err = f.WriteString(at + text + " " + p.Name + "\n")
		must(t, err)
		must(t, f.Close())
		return filepath.Dir(path)
	}
	r := Run{
		Pods: all, Done: result.Done, TimedOut: true, Dirs: l.Dirs, Output: l.Output, Stops: map[pod.Key]bool{},
		Warn: func(text string) { t.Error(text) },
	}
	for _, p := range all[:3] {
		r.Stops[pod.KeyOf(p)] = true
	}
	for _, p := range all {
		write(p, "up")
	}
	f := &File{Path: filepath.Join(t.TempDir(), "r.xml")}
	text := func() string {
		t.Helper()
		text, err := os.ReadFile(f.Path)
		must(t, err)
		return string(text)
	}
	must(t, f.ResultsUntil(r, time.Minute, nil))
	if got := text(); strings.Count(got, "up remains-n") != 2 || strings.Contains(got, "dump") {
		t.Errorf("at first: %s", got)
	}
	for _, p := range all {
		dir := write(p, "dump")
		f.Removing(pod.KeyOf(p), p.UID)
		if p.Name == "removed-n" || p == ended {
			must(t, os.RemoveAll(dir))
		}
	}
	must(t, os.RemoveAll(volume))
	write(all[1], "late")
	must(t, f.Complete(time.Minute, nil))
	got := text()
	for want, times := range map[string]int{
		"up ended-n": 1, "up remains-n\ndump remains-n\nlate remains-n\n": 2, "up removed-n\ndump removed-n\n": 2,
		"up stays-n": 2, "dump stays-n": 0, `name="own"`: 1, "timed out, not done: Running": 3,
	} {
		// A message has no line feed at its end.
		if n := strings.Count(got, strings.TrimSpace(want)); n != times {
			t.Errorf("%q is there %d times, not %d", want, n, times)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

// TestOneReportForAPipe: the reader of a pipe gets one report, and a report of what has ended is written once.
func TestOneReportForAPipe(t *testing.T) {
	t.Parallel()
	runs := notDonePod("runs", v1.ContainerStatus{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}})
	r := Run{
		Pods: []*v1.Pod{runs}, Done: result.Done, Stops: map[pod.Key]bool{pod.KeyOf(runs): true},
		Output: func(*v1.Pod, *v1.ContainerStatus) (string, string) { return "", "" },
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	must(t, unix.Mkfifo(pipe, 0o600))
	for name, u := range map[string]*unended{
		"a pipe": newUnended(pipe, r), "not stopped": newUnended("new", Run{Pods: r.Pods, Output: r.Output}),
	} {
		if u != nil {
			t.Errorf("%s: it is written again", name)
		}
	}
	if newUnended("new", r) == nil {
		t.Error("a file is not written again")
	}
	must(t, (&File{}).Complete(time.Minute, nil))
}
