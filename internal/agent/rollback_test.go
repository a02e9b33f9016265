package agent

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/event"
	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/fake"
	"podrun.io/podrun/internal/status"
)

// rollbackPod is a pod that is rolled back, with an image and a value.
func rollbackPod(image string, more ...string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  annotations:\n    podrun.io/rollback: 'true'\n    " +
		strings.Join(more, "\n    ") + "\nspec:\n  containers:\n  - {name: c, image: '" + image + "', volumeMounts: " +
		"[{name: m, mountPath: /m}]}\n  volumes: [{name: m, configMap: {name: m, optional: true}}]\n"
}

// configMap is a ConfigMap with a value.
func configMap(value string) string {
	return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {value: '" + value + "'}\n"
}

// pods returns the pods that have a status.
func (s *served) pods() []v1.Pod {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.o.Dirs.StatusFiles().Dir(), "*.json"))
	if err != nil {
		s.t.Fatal(err)
	}
	var all []v1.Pod
	for _, file := range files {
		var p v1.Pod
		if text, err := os.ReadFile(file); err != nil {
			s.t.Fatal(err)
		} else if err := json.Unmarshal(text, &p); err != nil {
			s.t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// images returns the images of the pods that have a status, with - if they end, * if they are ready, and ! if they are
// rolled back.
func (s *served) images() string {
	var all []string
	for _, p := range s.pods() {
		text := strings.TrimSuffix(p.Name, "-n") + "=" + strings.TrimSuffix(p.Spec.Containers[0].Image, "@"+fake.Digest)
		if p.DeletionTimestamp != nil {
			text += "-"
		}
		if slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
		}) {
			text += "*"
		}
		if p.Annotations[manifest.AnnotationRolledBack] != "" {
			text += "!"
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (s *served) show(d time.Duration, want string) {
	s.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	if got := s.images(); got != want {
		s.t.Errorf("%s, want %s", got, want)
	}
}

// value returns the value in the ConfigMap of the pod.
func (s *served) value() string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.o.Dirs.Root, "pods", string(s.pods()[0].UID),
		"volumes/kubernetes.io~configmap/m/value"))
	if err != nil {
		s.t.Error(err)
	}
	return string(text)
}

// rollbackTest runs a test with images of which v1, v2 and v3 run and bad exits.
func rollbackTest(t *testing.T, f func(s *served, rt *fake.Runtime)) {
	rt := fake.New("boot-1")
	for _, image := range []string{"v:1", "v:2", "v:3"} {
		rt.AddImage(image, fake.Script{})
	}
	rt.AddImage("bad:1", fake.Script{Run: time.Second, Exit: 1})
	rt.AddImage("bad:2", fake.Script{Run: time.Second, Exit: 1})
	s := newServed(t, rt)
	synctest.Test(t, func(t *testing.T) {
		s.t = t
		f(s, rt)
		s.stop()
	})
}

// TestRollback: a revision that is not healthy in time gives way to the last one that was, whatever happens to podrun and to
// the machine, and is not tried again before the manifest changes.
func TestRollback(t *testing.T) {
	rollbackTest(t, func(s *served, rt *fake.Runtime) {
		s.put(rollbackPod("v:1"))
		s.start()
		s.show(time.Minute, "web=v:1*")
		s.put(rollbackPod("bad:1"))
		s.show(140*time.Second, "web=bad:1")
		s.show(time.Minute, "web=v:1*!")
		s.show(time.Hour, "web=v:1*!")
		s.stop()
		s.start()
		s.show(time.Hour, "web=v:1*!")
		s.reboot(rt)
		s.show(time.Hour, "web=v:1*!")
		s.put(rollbackPod("v:2"))
		s.show(time.Minute, "web=v:2*")
		s.put(rollbackPod("bad:1")) // another try, of which podrun and the machine see only a part
		s.show(time.Minute, "web=bad:1")
		s.stop()
		time.Sleep(time.Hour)
		s.start()
		s.show(time.Minute, "web=bad:1")
		s.show(2*time.Minute, "web=v:2*!")
		s.put(rollbackPod("v:1"))
		s.show(5*time.Minute, "web=v:1*")
		rt.AddImage("v:1", fake.Script{Run: time.Second, Exit: 1}) // what was good and breaks later
		rt.Reboot("boot-3")
		s.stop()
		s.o.machine.Boot = "boot-3"
		s.start()
		s.show(time.Hour, "web=v:1")
	})
}

// TestRollbackToAnImage: a revision that is rolled back to runs the images that it ran, also if their tags refer to others
// meanwhile, and goes on so if the manifest is edited back to it.
func TestRollbackToAnImage(t *testing.T) {
	rollbackTest(t, func(s *served, rt *fake.Runtime) {
		s.put(rollbackPod("v:1"))
		s.start()
		s.show(time.Minute, "web=v:1*")
		rt.Push("v:1", "sha256:other", fake.Script{Run: time.Second, Exit: 1})
		if _, err := rt.Pull(t.Context(), "v:1"); err != nil {
			t.Error(err)
		}
		s.put(rollbackPod("bad:1"))
		s.show(5*time.Minute, "web=v:1*!")
		s.reboot(rt)
		s.show(time.Minute, "web=v:1*!")
		s.put(rollbackPod("v:1"))
		s.show(time.Minute, "web=v:1*")
		if got := s.pods()[0].Spec.Containers[0].Image; got != "v:1@"+fake.Digest {
			t.Errorf("it runs %s", got)
		}
		s.put(rollbackPod("v:2"))
		s.show(time.Minute, "web=v:2*")
		s.put(rollbackPod("v:1")) // a new trial is of what the tag refers to
		s.show(time.Minute, "web=v:1")
		s.show(5*time.Minute, "web=v:2*!")
	})
}

// TestAutoUpdate: at each time of the schedule, what a tag refers to in the registry replaces what it referred to before,
// unless that is not healthy.
func TestAutoUpdate(t *testing.T) {
	rollbackTest(t, func(s *served, rt *fake.Runtime) {
		if err := s.o.Updates.Set("@hourly", time.Minute); err != nil {
			t.Fatal(err)
		}
		image := func(d time.Duration, want string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			p := s.pods()[0]
			got := p.Spec.Containers[0].Image
			if p.Annotations[manifest.AnnotationRolledBack] != "" {
				got += "!"
			}
			if !pod.IsReady(&p) {
				got += " not ready"
			}
			if got != want {
				t.Errorf("it runs %s, want %s", got, want)
			}
		}
		auto := func(text, mode string) string {
			return strings.Replace(text, "podrun.io/rollback: 'true'", "podrun.io/auto-update: "+mode, 1)
		}
		s.put(auto(rollbackPod("v:1"), "registry"))
		s.start()
		image(90*time.Minute, "v:1@"+fake.Digest) // the registry has none
		first := s.pods()[0].UID
		rt.Push("v:1", fake.Digest, fake.Script{})
		image(time.Hour, "v:1@"+fake.Digest)
		if now := s.pods()[0].UID; now != first {
			t.Error("it was replaced")
		}
		rt.Push("v:1", "sha256:bad", fake.Script{Run: time.Second, Exit: 1})
		if _, err := rt.Pull(t.Context(), "v:1"); err != nil { // and podrun is killed before it takes note of that
			t.Error(err)
		}
		rt.Exit(strings.TrimPrefix(s.pods()[0].Status.ContainerStatuses[0].ContainerID, "containerd://"), 1)
		image(time.Minute, "v:1@"+fake.Digest)
		s.reboot(rt)
		image(time.Minute, "v:1@"+fake.Digest)
		image(time.Hour, "v:1@"+fake.Digest+"!")
		image(3*time.Hour, "v:1@"+fake.Digest+"!") // it is not tried again
		edited := strings.Replace(rollbackPod("v:1"), "spec:\n", "spec:\n  terminationGracePeriodSeconds: 7\n", 1)
		s.put(auto(edited, "registry"))
		image(time.Minute, "v:1@"+fake.Digest) // nor by an edit
		image(3*time.Hour, "v:1@"+fake.Digest)
		s.stop()
		s.start()
		image(3*time.Hour, "v:1@"+fake.Digest)
		rt.Push("v:1", "sha256:new", fake.Script{})
		image(time.Hour, "v:1@sha256:new")
		if now := s.pods()[0].UID; now == first {
			t.Error("the UID is that of the first one")
		}
		s.stop()
		s.start()
		image(time.Minute, "v:1@sha256:new")
		s.reboot(rt)
		image(time.Minute, "v:1@sha256:new")
		if _, err := rt.Pull(t.Context(), "v:1"); err != nil { // until now it was the bad one: updates move no tag
			t.Error(err)
		}
		rt.Push("v:1", "sha256:newer", fake.Script{})
		s.put(auto(rollbackPod("v:1"), "notify"))
		image(2*time.Hour, "v:1")
		records, err := event.Read(s.o.Dirs)
		if err != nil {
			t.Error(err)
		}
		told := 0
		for _, e := range records {
			if e.Reason == "ImageOutdated" && strings.Contains(e.Message, "sha256:newer") {
				told++
			}
		}
		if told != 1 {
			t.Errorf("there are %d events", told)
		}
	})
}

// TestAutoUpdateOfTwo: two pods of one image are updated, although the first update gives the tag another meaning on this
// machine.
func TestAutoUpdateOfTwo(t *testing.T) {
	rollbackTest(t, func(s *served, rt *fake.Runtime) {
		if err := s.o.Updates.Set("@hourly", 0); err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(rollbackPod("v:1"), "podrun.io/rollback: 'true'", "podrun.io/auto-update: registry", 1)
		s.put(text + "---\n" + strings.Replace(text, "name: web", "name: other", 1))
		s.start()
		s.show(time.Minute, "other=v:1* web=v:1*")
		rt.Push("v:1", "sha256:new", fake.Script{})
		s.show(61*time.Minute, "other=v:1@sha256:new* web=v:1@sha256:new*")
	})
}

// TestAutoUpdateOfADeployment: the pods are replaced one by one.
func TestAutoUpdateOfADeployment(t *testing.T) {
	rollingTest(t, func(s *served, rt *fake.Runtime) {
		if err := s.o.Updates.Set("@every 1m", 0); err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(rolling(2, "v:1", ""), "metadata: {labels: {a: b}}",
			"metadata: {labels: {a: b}, annotations: {podrun.io/auto-update: registry}}", 1)
		s.put(strings.ReplaceAll(text, "PORTS", "[]"))
		s.start()
		s.show(30*time.Second, "web-0=v:1* web-1=v:1*")
		rt.Push("v:1", "sha256:new", fake.Script{})
		s.show(3*time.Minute, "web-0=v:1@sha256:new* web-1=v:1@sha256:new*")
		all, err := status.Workloads(s.o.Dirs)
		if err != nil || len(all) != 1 || all[0].Hash != s.pods()[0].Annotations[manifest.AnnotationManifestHash] {
			t.Errorf("the pods count as not updated: %d workloads, %v", len(all), err)
		}
		s.stop()
		s.start()
		s.show(time.Minute, "web-0=v:1@sha256:new* web-1=v:1@sha256:new*")
	})
}

// TestRollbackIsAsked: without the annotation or --rollback nothing is rolled back.
func TestRollbackIsAsked(t *testing.T) {
	rollbackTest(t, func(s *served, _ *fake.Runtime) {
		plain := func(text string) string { return strings.Replace(text, "podrun.io/rollback: 'true'", "a: b", 1) }
		s.put(plain(rollbackPod("v:1")))
		s.start()
		s.show(time.Minute, "web=v:1*")
		s.put(plain(rollbackPod("bad:1")))
		s.show(10*time.Minute, "web=bad:1")
		s.stop()
		s.o.Sources.Rollback = true
		s.put(plain(rollbackPod("v:1")))
		s.start()
		s.show(time.Minute, "web=v:1*")
		s.put(plain(rollbackPod("bad:1")))
		s.show(10*time.Minute, "web=v:1*!")
		s.put(strings.Replace(rollbackPod("bad:2"), "'true'", "'false'", 1))
		s.show(10*time.Minute, "web=bad:2")
	})
}

// TestRollbackDeadline: the annotation says how long a revision is tried.
func TestRollbackDeadline(t *testing.T) {
	rollbackTest(t, func(s *served, _ *fake.Runtime) {
		s.put(rollbackPod("v:1"))
		s.start()
		s.show(time.Minute, "web=v:1*")
		s.put(rollbackPod("bad:1", "podrun.io/progress-deadline-seconds: '30'"))
		s.show(25*time.Second, "web=bad:1")
		s.show(70*time.Second, "web=v:1*!") // it is read within 20 s, and may take 30 and the former one's grace
	})
}

// TestRollbackWithoutContainerd: time in which containerd cannot be reached does not count for the deadline.
func TestRollbackWithoutContainerd(t *testing.T) {
	rollbackTest(t, func(s *served, rt *fake.Runtime) {
		away := func(err error) {
			for _, call := range []string{"ListContainers", "InspectContainers", "StartContainer", "SignalContainer", "CreateSandbox"} {
				rt.Fail(call, err)
			}
		}
		s.put(rollbackPod("v:1"))
		s.start()
		s.show(time.Minute, "web=v:1*")
		away(runtime.ErrUnavailable)
		s.put(rollbackPod("v:2"))
		s.show(time.Hour, "web=v:2")
		away(nil)
		s.show(90*time.Second, "web=v:2*")
		away(runtime.ErrUnavailable)
		s.put(rollbackPod("bad:1"))
		s.show(time.Hour, "web=bad:1")
		away(nil)
		s.show(90*time.Second, "web=bad:1")
		s.show(3*time.Minute, "web=v:2*!")
	})
}

// TestRollbackToAUID: while a revision is tried, no other pod gets the UID of the one that it may be rolled back to.
func TestRollbackToAUID(t *testing.T) {
	rollbackTest(t, func(s *served, _ *fake.Runtime) {
		s.put(rollbackPod("v:1"))
		s.start()
		s.show(time.Minute, "web=v:1*")
		other := "---\napiVersion: v1\nkind: Pod\nmetadata: {name: x, uid: " + string(s.pods()[0].UID) + "}\n" +
			"spec: {containers: [{name: c, image: 'v:3'}]}\n"
		s.put(rollbackPod("v:1") + other)
		s.show(time.Minute, "web=v:1*")
		s.put(rollbackPod("bad:1") + other)
		s.show(140*time.Second, "web=bad:1")
		s.show(time.Minute, "web=v:1*!")
		s.put(other) // when the pod is gone its UID is free
		s.show(2*time.Minute, "x=v:3*")
	})
}

// TestRollbackOfAConfigMap: with restart-on-change, the former ConfigMap comes back with the former pod.
func TestRollbackOfAConfigMap(t *testing.T) {
	rollbackTest(t, func(s *served, rt *fake.Runtime) {
		const restart = "podrun.io/restart-on-change: 'true'"
		probed := func(value string) string {
			text := rollbackPod("v:1", restart)
			return strings.Replace(text, "c, image", "c, readinessProbe: {exec: {command: [x]}}, image", 1) + configMap(value)
		}
		var bad atomic.Bool
		rt.OnExec(func(context.Context, string, []string) (int, error) {
			if bad.Load() {
				return 1, nil
			}
			return 0, nil
		})
		s.put(probed("1"))
		s.start()
		s.show(time.Minute, "web=v:1*")
		if now := s.value(); now != "1" {
			t.Errorf("the value is %q", now)
		}
		bad.Store(true)
		s.put(probed("2"))
		s.show(time.Minute, "web=v:1")
		if now := s.value(); now != "2" {
			t.Errorf("the value is %q", now)
		}
		s.show(2*time.Minute, "web=v:1!")
		bad.Store(false)
		s.show(time.Minute, "web=v:1*!")
		s.stop()
		s.start()
		s.show(time.Minute, "web=v:1*!")
		if now := s.value(); now != "1" {
			t.Errorf("the value is %q", now)
		}
	})
}

// TestRollbackOfADeployment: all pods of a workload go back together, and their number is the manifest's.
func TestRollbackOfADeployment(t *testing.T) {
	rollbackTest(t, func(s *served, _ *fake.Runtime) {
		deployment := func(replicas, image string) string {
			return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: " + replicas +
				"\n  progressDeadlineSeconds: 60\n  selector: {matchLabels: {a: b}}\n  template:\n    metadata: " +
				"{labels: {a: b}, annotations: {podrun.io/rollback: 'true'}}\n    spec: {containers: [{name: c, image: '" + image + "'}]}\n"
		}
		s.put(deployment("2", "v:1"))
		s.start()
		s.show(time.Minute, "web-0=v:1* web-1=v:1*")
		s.put(deployment("2", "bad:1"))
		s.show(40*time.Second, "web-0=v:1* web-1=v:1* web-2=bad:1")
		s.show(80*time.Second, "web-0=v:1*! web-1=v:1*!")
		s.put(deployment("3", "bad:1"))
		s.show(time.Minute, "web-0=v:1*! web-1=v:1*! web-2=v:1*!")
		s.put(deployment("1", "bad:1"))
		s.show(time.Minute, "web-0=v:1*!")
		s.put(deployment("1", "v:2"))
		s.show(time.Minute, "web-0=v:2*")
		if err := os.Remove(s.file); err != nil {
			t.Error(err)
		}
		s.show(time.Minute, "")
		if left, err := filepath.Glob(filepath.Join(s.o.Dirs.Root, "runs", "*")); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}

// TestRollbackToAHostPort: of a former revision with a host port there is one pod alone.
func TestRollbackToAHostPort(t *testing.T) {
	rollingTest(t, func(s *served, _ *fake.Runtime) {
		put := func(replicas int, image, ports string) {
			text := strings.Replace(rolling(replicas, image, ""), "metadata: {labels: {a: b}}",
				"metadata: {labels: {a: b}, annotations: {podrun.io/rollback: 'true', podrun.io/progress-deadline-seconds: '20'}}", 1)
			s.put(strings.ReplaceAll(text, "PORTS", ports))
		}
		put(1, "v:1", "[{containerPort: 80, hostPort: 8080}]")
		s.start()
		s.show(time.Minute, "web-0=v:1*")
		put(2, "bad:1", "[]")
		s.show(2*time.Minute, "web-0=v:1*!")
		put(2, "v:2", "[]")
		s.show(time.Minute, "web-0=v:2* web-1=v:2*")
	})
}

// TestLargeConfigMapsOfARevision: ConfigMaps that are too large together are not kept with a revision.
func TestLargeConfigMapsOfARevision(t *testing.T) {
	for _, size := range []int{1 << 18, 1<<19 + 1} { // of each of two
		rollbackTest(t, func(s *served, rt *fake.Runtime) {
			put := func(image string) {
				large := configMap(strings.Repeat("x", size))
				text := strings.Replace(rollbackPod(image, "podrun.io/restart-on-change: 'true'"), "volumes: [",
					"volumes: [{name: k, configMap: {name: k}}, ", 1)
				s.put(text + large + strings.Replace(large, "name: m", "name: k", 1))
			}
			put("v:1")
			s.start()
			s.show(time.Minute, "web=v:1*")
			put("bad:1")
			s.show(140*time.Second, "web=bad:1")
			s.show(time.Minute, "web=v:1*!")
			all, err := rt.Store().Runs()
			if err != nil || len(all) != 1 {
				t.Errorf("%v, %v", all, err)
				return
			}
			if kept := len(all[0].History) > 2*size; kept != (2*size < 1<<20) {
				t.Errorf("two ConfigMaps of %d bytes are kept: %v; a record of %d bytes", size, kept, len(all[0].History))
			}
		})
	}
}
