package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podrun.io/podrun/internal/checkpoint"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/fake"
	"podrun.io/podrun/internal/status"
	"podrun.io/podrun/internal/workload"
)

// jobText is a Job of an image with more fields of its spec, each a line.
func jobText(image string, more ...string) string {
	return "apiVersion: batch/v1\nkind: Job\nmetadata: {name: work}\nspec:\n  " + strings.Join(more, "\n  ") + "\n  template:\n" +
		"    spec: {restartPolicy: Never, containers: [{name: c, image: '" + image + "'}]}\n"
}

// served is a serve in virtual time, with a manifest that tests change.
type served struct {
	t    *testing.T
	o    Options
	file string
	stop func()
	// stopPods makes serve stop all pods when it stops.
	stopPods bool
}

func newServed(t *testing.T, rt *fake.Runtime) *served {
	o := simulated(t, rt)
	return &served{t: t, o: o, file: filepath.Join(o.Sources.Manifests[0], "work.yaml")}
}

func (s *served) put(text string) {
	s.t.Helper()
	if err := os.WriteFile(s.file+".new", []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.file+".new", s.file); err != nil {
		s.t.Fatal(err)
	}
}

// rename gives the manifest's file another name.
func (s *served) rename(name string) {
	s.t.Helper()
	to := filepath.Join(filepath.Dir(s.file), name+".yaml")
	if err := os.Rename(s.file, to); err != nil {
		s.t.Fatal(err)
	}
	s.file = to
}

func (s *served) start() {
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error)
	go func() { done <- Serve(ctx, s.o, s.stopPods) }()
	s.stop = func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	}
}

// reboot stops serve and starts it in the second boot.
func (s *served) reboot(rt *fake.Runtime) {
	s.stop()
	s.boot(rt)
}

// boot starts serve in the second boot.
func (s *served) boot(rt *fake.Runtime) {
	rt.Reboot("boot-2")
	s.o.machine.Boot = "boot-2"
	s.start()
}

// after waits and compares the Job's status and the pods that exist.
func (s *served) after(d time.Duration, want string) {
	s.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	if got := s.job() + "; " + existing(s.t, s.o); got != want {
		s.t.Errorf("%s\nwant %s", got, want)
	}
}

func (s *served) job() string {
	s.t.Helper()
	all, err := status.Workloads(s.o.Dirs)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, w := range all {
		if w.Kind != workload.Job {
			continue
		}
		job := w.Job()
		text := fmt.Sprintf("%d active %d succeeded %d failed", job.Status.Active, job.Status.Succeeded, job.Status.Failed)
		for _, c := range job.Status.Conditions {
			if c.Status == "True" {
				text += " " + string(c.Type) + "=" + c.Reason
			}
		}
		return text
	}
	return "no job"
}

// workDone is what served.job returns when the Job work has succeeded.
const workDone = "0 active 1 succeeded 0 failed SuccessCriteriaMet=CompletionsReached Complete=CompletionsReached; work-0-n*"

// TestJobOnce: a Job runs once, whatever happens to podrun, to the machine and to its file.
func TestJobOnce(t *testing.T) {
	rt := fake.New("boot-1")
	rt.AddImage("good:1", fake.Script{Run: time.Minute})
	rt.AddImage("good:2", fake.Script{Run: time.Minute})
	s := newServed(t, rt)
	s.put(jobText("good:1"))
	synctest.Test(t, func(t *testing.T) {
		s.t = t
		s.start()
		s.after(30*time.Second, "1 active 0 succeeded 0 failed; work-0-n")
		s.stop()
		s.start()
		s.after(50*time.Second, workDone)
		s.reboot(rt)
		s.after(5*time.Minute, workDone)
		s.put(jobText("good:2"))
		s.after(50*time.Second, "1 active 0 succeeded 0 failed; work-0-n")
		s.after(5*time.Minute, workDone)
		if err := os.Remove(s.file); err != nil {
			t.Error(err)
		}
		s.after(time.Minute, "no job; ")
		s.put(jobText("good:2"))
		s.after(50*time.Second, "1 active 0 succeeded 0 failed; work-0-n")
		s.stop()
	})
}

// TestJobRenamed: another file name restarts no Job, whether it runs or has finished.
func TestJobRenamed(t *testing.T) {
	rt := fake.New("boot-1")
	rt.AddImage("good:1", fake.Script{Run: time.Minute})
	s := newServed(t, rt)
	s.put(jobText("good:1"))
	synctest.Test(t, func(t *testing.T) {
		s.t = t
		s.start()
		s.after(30*time.Second, "1 active 0 succeeded 0 failed; work-0-n")
		s.rename("while it runs")
		s.after(20*time.Second, "1 active 0 succeeded 0 failed; work-0-n")
		s.after(20*time.Second, workDone)
		s.rename("when it has finished")
		s.after(30*time.Second, workDone)
		s.stop()
		s.rename("while podrun does not run")
		s.start()
		s.after(30*time.Second, workDone)
		s.stop()
	})
	if ran := rt.Ran(); len(ran) != 1 {
		t.Errorf("it ran as %v", ran)
	}
}

// TestJobSidecarCutOff: the end of a Job does not wait for a sidecar whose restart was cut off.
func TestJobSidecarCutOff(t *testing.T) {
	rt := fake.New("boot-1")
	rt.AddImage("good:1", fake.Script{Run: time.Minute})
	rt.AddImage("bad:1", fake.Script{Run: 45 * time.Second, Exit: 1})
	s := newServed(t, rt)
	s.put(strings.Replace(jobText("good:1"), "restartPolicy: Never,",
		"restartPolicy: Never, initContainers: [{name: s, image: 'bad:1', restartPolicy: Always}],", 1))
	synctest.Test(t, func(t *testing.T) {
		s.t = t
		s.start()
		s.after(30*time.Second, "1 active 0 succeeded 0 failed; work-0-n")
		rt.Fail("StartContainer", runtime.ErrUnavailable)
		s.after(2*time.Minute, "0 active 1 succeeded 0 failed SuccessCriteriaMet=CompletionsReached Complete=CompletionsReached; work-0-n*")
		s.stop()
	})
}

// TestJobInterrupted: a try that a reboot interrupts counts as a failure, and another one takes its place.
func TestJobInterrupted(t *testing.T) {
	rt := fake.New("boot-1")
	rt.AddImage("good:1", fake.Script{Run: time.Minute})
	s := newServed(t, rt)
	s.put(jobText("good:1"))
	synctest.Test(t, func(t *testing.T) {
		s.t = t
		s.start()
		s.after(30*time.Second, "1 active 0 succeeded 0 failed; work-0-n")
		s.reboot(rt)
		s.after(5*time.Second, "0 active 0 succeeded 1 failed; work-0-n?")
		s.after(20*time.Second, "1 active 0 succeeded 1 failed; work-0-n? work-1-n")
		s.after(2*time.Minute, "0 active 1 succeeded 1 failed SuccessCriteriaMet=CompletionsReached Complete=CompletionsReached; work-0-n? work-1-n*")
		s.stop()
	})
}

// TestJobPerBoot: with the annotation, a Job runs once in each boot.
func TestJobPerBoot(t *testing.T) {
	rt := fake.New("boot-1")
	rt.AddImage("good:1", fake.Script{Run: time.Minute})
	s := newServed(t, rt)
	s.put(strings.Replace(jobText("good:1"), "{name: work}", "{name: work, annotations: {podrun.io/run-policy: per-boot}}", 1))
	synctest.Test(t, func(t *testing.T) {
		s.t = t
		s.start()
		s.after(5*time.Minute, "0 active 1 succeeded 0 failed SuccessCriteriaMet=CompletionsReached Complete=CompletionsReached; work-0-n*")
		s.reboot(rt)
		s.after(50*time.Second, "1 active 0 succeeded 0 failed; work-0-n")
		s.stop()
	})
}

// TestJobBackoff: a Job that fails tries again after 10 s, 20 s and 40 s, and then gives up.
func TestJobBackoff(t *testing.T) {
	rt := fake.New("boot-1")
	rt.AddImage("bad:1", fake.Script{Run: time.Second, Exit: 3})
	s := newServed(t, rt)
	s.put(jobText("bad:1", "backoffLimit: 3", "ttlSecondsAfterFinished: 600"))
	synctest.Test(t, func(t *testing.T) {
		s.t = t
		s.start()
		s.after(7*time.Second, "0 active 0 succeeded 1 failed; work-0-n?")
		s.after(10*time.Second, "0 active 0 succeeded 2 failed; work-0-n? work-1-n?")
		s.after(20*time.Second, "0 active 0 succeeded 3 failed; work-0-n? work-1-n? work-2-n?")
		s.after(10*time.Second, "0 active 0 succeeded 3 failed; work-0-n? work-1-n? work-2-n?")
		const failed = "0 active 0 succeeded 4 failed FailureTarget=BackoffLimitExceeded Failed=BackoffLimitExceeded; "
		s.after(time.Minute, failed+"work-0-n? work-1-n? work-2-n? work-3-n?")
		s.after(11*time.Minute, failed)
		s.stop()
		s.start()
		s.after(time.Hour, failed)
		s.stop()
	})
}

// TestJobNotRecorded: what cannot be recorded is not done.
func TestJobNotRecorded(t *testing.T) {
	rt := fake.New("boot-1")
	rt.AddImage("good:1", fake.Script{Run: time.Minute})
	s := newServed(t, rt)
	s.put(jobText("good:1"))
	rt.Fail("Checkpoint", os.ErrPermission)
	synctest.Test(t, func(t *testing.T) {
		s.t = t
		s.start()
		s.after(time.Minute, "0 active 0 succeeded 0 failed; ")
		rt.Fail("Checkpoint", nil)
		s.after(10*time.Second, "1 active 0 succeeded 0 failed; work-0-n")
		s.stop()
		if err := rt.Store().SaveRun(checkpoint.Run{Namespace: "default", Name: "work", History: []byte(`"broken"`)}); err != nil {
			t.Error(err)
		}
		s.start()
		s.after(5*time.Minute, "0 active 0 succeeded 0 failed; work-0-n*")
		s.stop()
	})
}

// TestOnceJob: once waits for the result of a Job, which tries again, and pods start after it.
func TestOnceJob(t *testing.T) {
	after := "---\napiVersion: v1\nkind: Pod\nmetadata: {name: last, annotations: {podrun.io/after: work}}\n" +
		"spec: {restartPolicy: Never, containers: [{name: c, image: 'good:1'}]}\n"
	for name, test := range map[string]struct {
		manifest string
		failed   bool
		took     time.Duration
		pods     string
	}{
		"complete": {jobText("good:1", "completions: 3", "parallelism: 2") + after, false, 3 * time.Minute, "last-n Succeeded, work-0-n Succeeded, work-1-n Succeeded, work-2-n Succeeded"},
		"failed":   {jobText("bad:1", "backoffLimit: 1") + after, true, 12 * time.Second, "last-n Pending, work-0-n Failed, work-1-n Failed"},
		"deadline": {jobText("good:1", "activeDeadlineSeconds: 20"), true, 20 * time.Second, "work-0-n Running"},
	} {
		t.Run(name, func(t *testing.T) {
			rt := fake.New("boot-1")
			rt.AddImage("good:1", fake.Script{Run: time.Minute})
			rt.AddImage("bad:1", fake.Script{Run: time.Second, Exit: 3})
			s := newServed(t, rt)
			s.put(test.manifest)
			synctest.Test(t, func(t *testing.T) {
				for range 2 { // a second run begins anew
					begun := time.Now()
					result, err := Once(t.Context(), s.o, OnceOptions{})
					if err != nil || result.Failed() != test.failed {
						t.Errorf("failed: %v, %v", result.Failed(), err)
					}
					if took := time.Since(begun); took < test.took || took > test.took+20*time.Second {
						t.Errorf("it took %s, want %s", took, test.took)
					}
					var pods []string
					for _, p := range result.Pods {
						pods = append(pods, p.Name+" "+string(p.Status.Phase))
					}
					if got := strings.Join(pods, ", "); got != test.pods {
						t.Errorf("%s\nwant %s", got, test.pods)
					}
				}
			})
		})
	}
}
