package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/fake"
)

// ignoreDisruptions is a podFailurePolicy by which a pod that a shutdown of the machine interrupts does not count.
const ignoreDisruptions = "podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}"

// newShutDown returns a served whose containers c exit with code 0 when they are asked to end, and what makes systemd say
// that the machine is shutting down.
func newShutDown(t *testing.T, rt *fake.Runtime) (s *served, stopping func(is bool)) {
	state := filepath.Join(t.TempDir(), "state")
	stopping = func(is bool) {
		text := map[bool]string{true: "stopping\n", false: "running\n"}[is]
		if err := os.WriteFile(state, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stopping(false)
	script := filepath.Join(filepath.Dir(state), "systemctl")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nread -r state < "+state+"; echo $state\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(script)+":"+os.Getenv("PATH"))
	rt.AddImage("good:1", fake.Script{Run: time.Minute})
	rt.ExitOnTerm("c", 0)
	s = newServed(t, rt)
	s.o.Halt.Grace, s.o.Halt.Bus = 20*time.Second, "unix:path="+filepath.Join(filepath.Dir(state), "none")
	return s, stopping
}

// TestJobShutDown: the machine shuts down in the middle of a Job, whose container exits with code 0 when it is asked to end.
// The try has failed, with the condition DisruptionTarget, and the work is done after the reboot.
func TestJobShutDown(t *testing.T) {
	const complete = "SuccessCriteriaMet=CompletionsReached Complete=CompletionsReached; work-0-n? work-1-n*"
	for _, policy := range []string{"Never", "OnFailure"} {
		for _, more := range []string{"backoffLimit: 6", ignoreDisruptions} {
			if policy == "OnFailure" && more == ignoreDisruptions {
				continue // Kubernetes allows no such Job
			}
			t.Run(policy+" "+more, func(t *testing.T) {
				rt := fake.New("boot-1")
				s, stopping := newShutDown(t, rt)
				s.put(strings.Replace(jobText("good:1", more), "Never", policy, 1))
				failed := map[bool]string{true: "0 failed", false: "1 failed"}[more == ignoreDisruptions]
				synctest.Test(t, func(t *testing.T) {
					s.t = t
					s.start()
					s.after(30*time.Second, "1 active 0 succeeded 0 failed; work-0-n")
					stopping(true)
					s.stop()
					stopping(false)
					p := shown(t, s.o, "work-0-n")
					if p.Status.Phase != "Failed" || p.Status.Reason != "Terminated" || p.Status.ContainerStatuses[0].State.Terminated.ExitCode != 0 {
						t.Errorf("%+v", p.Status)
					}
					s.boot(rt)
					s.after(30*time.Second, "1 active 0 succeeded "+failed+"; work-0-n? work-1-n")
					s.after(2*time.Minute, "0 active 1 succeeded "+failed+" "+complete)
					s.stop()
				})
			})
		}
	}
}

// TestPodShutDown: a pod that no Job has runs again after the reboot, as after any other. One that runs once ever has failed,
// although its container exits with code 0 when it is asked to end, and runs again only with OnFailure.
func TestPodShutDown(t *testing.T) {
	rt := fake.New("boot-1")
	s, stopping := newShutDown(t, rt)
	s.put("apiVersion: v1\nkind: Pod\nmetadata: {name: once}\nspec: {restartPolicy: Never, containers: [{name: c, image: 'good:1'}]}\n" +
		"---\napiVersion: v1\nkind: Pod\nmetadata: {name: retried}\nspec: {restartPolicy: OnFailure, containers: [{name: c, image: 'good:1'}]}\n" +
		"---\napiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: 'good:1'}]}\n" +
		"---\napiVersion: v1\nkind: Pod\nmetadata: {name: ever, annotations: {podrun.io/run-policy: once-ever}}\n" +
		"spec: {restartPolicy: Never, containers: [{name: c, image: 'good:1'}]}\n" +
		"---\napiVersion: v1\nkind: Pod\nmetadata: {name: import, annotations: {podrun.io/run-policy: once-ever}}\n" +
		"spec: {restartPolicy: OnFailure, containers: [{name: c, image: 'good:1'}]}\n")
	synctest.Test(t, func(t *testing.T) {
		s.t = t
		s.start()
		s.after(30*time.Second, "no job; ever-n import-n once-n retried-n web-n*")
		stopping(true)
		s.stop()
		stopping(false)
		for _, name := range []string{"ever-n", "import-n"} {
			p := shown(t, s.o, name)
			disrupted := slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget })
			if p.Status.Phase != "Failed" || p.Status.Reason != "Terminated" || !disrupted {
				t.Errorf("%s: %+v", name, p.Status)
			}
		}
		s.boot(rt)
		s.after(20*time.Second, "no job; ever-n? import-n once-n retried-n web-n*")
		s.after(time.Minute, "no job; ever-n? import-n* once-n* retried-n* web-n*")
		s.stop()
	})
}

// TestJobShutDownCut: podrun is killed after each of its changes while the machine shuts down. The try never counts as a
// success. It is a disruption, which the podFailurePolicy ignores, if podrun came so far as to record it; before that nothing
// was asked to end, and the reboot is one without a shutdown.
func TestJobShutDownCut(t *testing.T) {
	for n, done := 0, false; !done; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			rt := fake.New("boot-1")
			s, stopping := newShutDown(t, rt)
			s.put(jobText("good:1", ignoreDisruptions))
			synctest.Test(t, func(t *testing.T) {
				s.t = t
				s.start()
				s.after(30*time.Second, "1 active 0 succeeded 0 failed; work-0-n")
				stopping(true)
				rt.CutAfter(n)
				s.stop()
				stopping(false)
				done = rt.Left() > 0
				rt.CutAfter(-1)
				recorded := interrupted(t, rt)
				if asked := slices.ContainsFunc(rt.Calls(), isSignal); asked && !recorded || done && !asked {
					t.Errorf("asked to end: %v, recorded: %v", asked, recorded)
				}
				failed := map[bool]string{true: "0 failed", false: "1 failed"}[recorded]
				s.boot(rt)
				s.after(30*time.Second, "1 active 0 succeeded "+failed+"; work-0-n? work-1-n")
				s.after(2*time.Minute, "0 active 1 succeeded "+failed+
					" SuccessCriteriaMet=CompletionsReached Complete=CompletionsReached; work-0-n? work-1-n*")
				s.stop()
			})
		})
		if n > 100 {
			t.Fatal("no end")
		}
	}
}

func isSignal(call string) bool { return strings.HasPrefix(call, "SignalContainer") }

// interrupted reports that a checkpoint says that the shutdown interrupts its pod.
func interrupted(t *testing.T, rt *fake.Runtime) (is bool) {
	t.Helper()
	all, err := rt.Store().List()
	if err != nil {
		t.Fatal(err)
	}
	for _, revisions := range all {
		for _, c := range revisions {
			is = is || c.Interrupted
		}
	}
	return is
}

// shown returns a pod as its status file has it.
func shown(t *testing.T, o Options, name string) (p v1.Pod) {
	t.Helper()
	text, err := os.ReadFile(o.Dirs.StatusFiles().Pod(pod.Key{Namespace: "default", Name: name}))
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		t.Error(err)
	}
	return p
}
