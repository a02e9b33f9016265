package agent

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/manifest/podsecurity"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/fake"
)

// TestRefusedPodsAreNotStartedAnew: once there is a level of --pod-security, a pod that podrun knew before and that the
// level refuses is not started for the first time, and not again after a reboot. Until then it keeps running.
func TestRefusedPodsAreNotStartedAnew(t *testing.T) {
	rt := fake.New("boot-1")
	rt.AddImage("job:1", fake.Script{Run: time.Second})
	rt.AddImage("web:1", fake.Script{})
	o := simulated(t, rt)
	put := func(name, image, spec string) {
		text := "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {" + spec +
			"containers: [{name: " + name + ", image: \"" + image + "\", imagePullPolicy: Never}]}\n"
		if err := os.WriteFile(filepath.Join(o.Sources.Manifests[0], name+".yaml"), []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
	put("job", "job:1", "hostPID: true, restartPolicy: Never, ")
	put("late", "late:1", "hostPID: true, ")
	put("web", "web:1", "hostPID: true, ")
	put("good", "web:1", "")
	synctest.Test(t, func(t *testing.T) {
		serve := func(change func()) {
			t.Helper()
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- Serve(ctx, o, false) }()
			time.Sleep(10 * time.Minute)
			if change != nil {
				change()
				time.Sleep(10 * time.Minute)
			}
			stop()
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		started := func(when, want string) {
			t.Helper()
			var got []string
			for _, id := range rt.Ran() { // UID-CONTAINER-ATTEMPT
				got = append(got, id[strings.Index(id, "-")+1:])
			}
			slices.Sort(got)
			if all := strings.Join(got, " "); all != want {
				t.Errorf("%s: started %s, want %s", when, all, want)
			}
		}
		shown := func(name string) (p v1.Pod) {
			t.Helper()
			text, err := os.ReadFile(o.Dirs.StatusFiles().Pod(pod.Key{Namespace: "default", Name: name + "-n"}))
			if err != nil {
				t.Error(err)
			} else if err := json.Unmarshal(text, &p); err != nil {
				t.Error(err)
			}
			return p
		}
		serve(nil)
		started("without a level", "good-0 job-0 web-0")
		level, err := podsecurity.New("baseline")
		if err != nil {
			t.Fatal(err)
		}
		o.Sources.Policy = level
		rt.AddImage("late:1", fake.Script{})
		serve(nil)
		started("with a level", "good-0 job-0 web-0")
		if p := shown("web"); p.Status.Phase != v1.PodRunning || p.Status.Reason != "" {
			t.Errorf("web: %+v", p.Status)
		}
		if p := shown("late"); p.Status.Reason != "PodSecurity" || !strings.Contains(p.Status.Message, "hostPID") {
			t.Errorf("late: %+v", p.Status)
		}
		rt.Reboot("boot-2")
		o.machine.Boot = "boot-2"
		if err := os.RemoveAll(o.Dirs.Run); err != nil {
			t.Error(err)
		}
		serve(func() {
			started("after a reboot", "good-0 good-1 job-0 web-0")
			if p := shown("web"); p.Status.Reason != "PodSecurity" || !strings.Contains(p.Status.Message, "hostPID") {
				t.Errorf("web after a reboot: %+v", p.Status)
			}
			if p := shown("job"); p.Status.Phase != v1.PodSucceeded {
				t.Errorf("the job after a reboot: %+v", p.Status)
			}
			put("web", "web:1", "")
		})
		started("when the level allows web", "good-0 good-1 job-0 web-0 web-0")
	})
}

// TestRefusedJobsOfARecord: a Job of a CronJob goes on by the template that it was created with. What a level refuses
// there is not started, although the manifest is allowed by now.
func TestRefusedJobsOfARecord(t *testing.T) {
	rt := fake.New("boot-1")
	rt.AddImage("bad:1", fake.Script{Run: time.Minute, Exit: 1})
	s := newServed(t, rt)
	s.o.machine.wall = time.Now
	text := cronText("bad:1", `schedule: "*/10 * * * *"`, "suspend: false")
	text = strings.Replace(text, "    spec:\n      template:", "    spec:\n      backoffLimit: 1000\n      template:", 1)
	s.put(strings.Replace(text, "spec: {restartPolicy", "spec: {hostPID: true, restartPolicy", 1))
	synctest.Test(t, func(t *testing.T) {
		s.t = t
		s.start() // at 00:00
		s.crons(15*time.Minute, "1 active last 00.10 00.10:1/0/3")
		s.put(strings.Replace(text, "suspend: false", "suspend: true", 1))
		s.crons(time.Minute, "1 active last 00.10 00.10:0/0/4")
		s.stop()
		level, err := podsecurity.New("baseline")
		if err != nil {
			t.Fatal(err)
		}
		s.o.Sources.Policy = level
		s.start()
		time.Sleep(20 * time.Minute)
		before := len(rt.Ran())
		time.Sleep(3 * time.Hour)
		if n := len(rt.Ran()); n != before {
			t.Errorf("%d more pods that the level refuses were started", n-before)
		}
		text, err := os.ReadFile(s.o.Dirs.Events())
		if err != nil || !strings.Contains(string(text), "hostPID") {
			t.Errorf("nothing says why: %v", err)
		}
		s.stop()
	})
}
