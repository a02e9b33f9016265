package agent

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/runtime/fake"
)

// onceEverPod is a pod that runs once ever.
func onceEverPod(name, policy, image string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", annotations: {podrun.io/run-policy: once-ever}}\n" +
		"spec: {restartPolicy: " + policy + ", containers: [{name: " + name + ", image: '" + image + "'}]}\n---\n"
}

// down runs podrun down --all.
func (s *served) down() {
	s.t.Helper()
	_, err := Down(s.t.Context(), s.o, DownOptions{Pick: func(pods []*v1.Pod) ([]*v1.Pod, error) { return pods, nil }})
	if err != nil {
		s.t.Error(err)
	}
}

// starts returns which pods have had a container started since the last call, in order of their names.
func starts(rt *fake.Runtime, before *int) (all string) {
	calls := rt.Calls()
	for _, name := range []string{"again", "cut", "done", "failed"} {
		for _, call := range calls[*before:] {
			if strings.HasPrefix(call, "StartContainer ") && strings.Contains(call, "-"+name+"-") {
				all += name + " "
			}
		}
	}
	*before = len(calls)
	return strings.TrimSpace(all)
}

// TestOnceEverStopped: what runs once ever and has completed does not run again after all pods were stopped, as a
// shutdown of a machine without systemd does. What had not completed does, unless it must not be started twice.
func TestOnceEverStopped(t *testing.T) {
	for _, how := range []string{"down", "down twice", "serve --stop-pods"} {
		t.Run(how, func(t *testing.T) {
			rt := fake.New("boot-1")
			s := newServed(t, rt)
			s.stopPods = how == "serve --stop-pods"
			rt.AddImage("short:1", fake.Script{Run: time.Second})
			rt.AddImage("bad:1", fake.Script{Run: time.Second, Exit: 1})
			rt.AddImage("long:1", fake.Script{Run: time.Hour})
			rt.ExitOnTerm("again", 0)
			rt.ExitOnTerm("cut", 0)
			text := onceEverPod("done", "OnFailure", "short:1") + onceEverPod("failed", "Never", "bad:1") +
				onceEverPod("cut", "Never", "long:1") + onceEverPod("again", "OnFailure", "long:1")
			s.put(text)
			synctest.Test(t, func(t *testing.T) {
				s.t = t
				s.start()
				s.after(time.Minute, "no job; again-n cut-n done-n* failed-n?")
				calls := 0
				if got := starts(rt, &calls); got != "again cut done failed" {
					t.Errorf("started %s", got)
				}
				for _, boot := range []string{"boot-1", "boot-2", "boot-3"} {
					s.stopAll(how)
					if got := existing(t, s.o); got != "" {
						t.Errorf("left: %s", got)
					}
					rt.Reboot(boot)
					s.o.machine.Boot = boot
					s.start()
					s.after(time.Minute, "no job; again-n cut-n? done-n* failed-n?")
					if got := starts(rt, &calls); got != "again" {
						t.Errorf("started %s", got)
					}
				}
				if p := shown(t, s.o, "cut-n"); p.Status.Phase != v1.PodFailed || p.Status.Reason != "Terminated" {
					t.Errorf("cut: %+v", p.Status)
				}
				if p := shown(t, s.o, "done-n"); p.Status.Phase != v1.PodSucceeded {
					t.Errorf("done: %+v", p.Status)
				}
				s.put(strings.ReplaceAll(text, "short:1", "long:1")) // an edit makes another pod of it
				s.after(time.Minute, "no job; again-n cut-n? done-n failed-n?")
				if err := os.Remove(s.file); err != nil {
					t.Error(err)
				}
				s.after(time.Minute, "no job; ")
				starts(rt, &calls)
				s.put(text)
				s.after(time.Minute, "no job; again-n cut-n done-n* failed-n?")
				if got := starts(rt, &calls); got != "again cut done failed" {
					t.Errorf("started after the removal: %s", got)
				}
				s.stopAll(how)
				if err := os.Remove(s.file); err != nil { // while no serve runs
					t.Error(err)
				}
				s.start()
				s.after(time.Minute, "no job; ")
				s.stop()
				s.put(text)
				s.start()
				s.after(time.Minute, "no job; again-n cut-n done-n* failed-n?")
				if got := starts(rt, &calls); got != "again cut done failed" {
					t.Errorf("started after the second removal: %s", got)
				}
				s.stop()
			})
		})
	}
}

// stopAll stops serve, and with it or after it all pods.
func (s *served) stopAll(how string) {
	s.t.Helper()
	s.stop()
	if !s.stopPods {
		s.down()
	}
	if how == "down twice" {
		s.down()
	}
}
