package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podrun.io/podrun/internal/manifest"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime"
	"podrun.io/podrun/internal/runtime/fake"
)

// afterPods is a manifest of a pod that starts after others.
func afterPods(manifest, after string) string {
	return strings.Replace(manifest, "metadata: {", fmt.Sprintf("metadata: {annotations: {podrun.io/after: %q}, ", after), 1)
}

// exit ends all instances that run.
func (r *onceTest) exit(code int) {
	all, err := r.runtime.List(context.Background())
	if err != nil {
		r.t.Error(err)
	}
	for _, o := range all {
		for _, c := range o.Containers {
			if c.State == pod.Running {
				r.runtime.Exit(c.ID, code)
			}
		}
	}
}

// TestOnceWaitsUntilServicesAreStable: a service has to stay ready, without a restart, for
// --service-stable. One that is in back-off when everything else is known has failed.
func TestOnceWaitsUntilServicesAreStable(t *testing.T) {
	web, crash := onceManifest("web", "Always", "web:1"), onceManifest("crash", "Always", "bad:1")
	for _, c := range []struct {
		name      string
		manifests []string
		prepare   func(r *onceTest)
		// crashing and stranded are the pods that have failed, and those that are not started.
		crashing, stranded string
		timedOut           bool
		least, most        time.Duration
	}{
		{name: "it stays ready", manifests: []string{web}, least: 3 * time.Second, most: 4 * time.Second},
		{name: "it crashes again and again", manifests: []string{crash}, crashing: "crash-n",
			least: 2 * time.Second, most: 4 * time.Second},
		{name: "it completes again and again", manifests: []string{onceManifest("crash", "Always", "job:1")},
			crashing: "crash-n", least: 2 * time.Second, most: 4 * time.Second},
		{name: "beside one that is well", manifests: []string{web, crash}, crashing: "crash-n",
			least: 3 * time.Second, most: 5 * time.Second},
		{name: "it restarts once", manifests: []string{web},
			prepare: func(r *onceTest) { r.after(2*time.Second, func() { r.exit(1) }) },
			least:   5 * time.Second, most: 6 * time.Second},
		{name: "a job decides when it counts", manifests: []string{crash, onceManifest("job", "Never", "long:1")},
			prepare:  func(r *onceTest) { r.runtime.AddImage("long:1", fake.Script{Run: 9 * time.Second}) },
			crashing: "crash-n", least: 9 * time.Second, most: 10 * time.Second},
		{name: "it is well when the job has ended", manifests: []string{
			onceManifest("crash", "Always", "later:1"), onceManifest("job", "Never", "long:1"),
		}, prepare: func(r *onceTest) {
			r.runtime.AddImage("long:1", fake.Script{Run: time.Minute})
			r.runtime.AddImage("later:1", fake.Script{Run: time.Second, Exit: 1})
			r.after(20*time.Second, func() { r.runtime.AddImage("later:1", fake.Script{}) })
		}, least: time.Minute, most: 61 * time.Second},
		{name: "a job after it is not started", manifests: []string{
			crash, afterPods(onceManifest("job", "Never", "job:1"), "crash"),
			afterPods(onceManifest("next", "Never", "job:1"), "job"),
		}, prepare: func(r *onceTest) {
			r.runtime.AddImage("bad:1", fake.Script{StartError: errors.New("no such program")})
		}, crashing: "crash-n", stranded: "job-n next-n", most: 4 * time.Second},
		{name: "one that needed another has another attempt", manifests: []string{
			onceManifest("crash", "Always", "later:1"), onceManifest("db", "Always", "db:1"),
		}, prepare: func(r *onceTest) {
			r.runtime.AddImage("later:1", fake.Script{Run: time.Second, Exit: 1})
			r.runtime.SlowPull("db:1", &pod.Progress{})
			r.after(5*time.Second, func() {
				r.runtime.SlowPull("db:1", nil)
				r.runtime.AddImage("later:1", fake.Script{})
			})
		}, least: 14 * time.Second, most: 18 * time.Second},
		{name: "a service is not ready in time", manifests: []string{web}, prepare: func(r *onceTest) {
			r.once.Timeout = 2 * time.Second
		}, timedOut: true, least: 2 * time.Second, most: 3 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			onFake(t, func(r *onceTest) {
				r.once.Stable = 3 * time.Second
				if c.prepare != nil {
					c.prepare(r)
				}
				result, took := r.mustRun(c.manifests...)
				r.wantTook(took, c.least, c.most)
				var crashing, stranded []string
				for _, p := range result.Pods {
					if result.CrashLooping[pod.KeyOf(p)] {
						crashing = append(crashing, p.Name)
					}
					if result.Stranded()[pod.KeyOf(p)] {
						stranded = append(stranded, p.Name)
					}
				}
				if got := strings.Join(crashing, " "); got != c.crashing || result.Failed() != (got != "") {
					t.Errorf("%q have failed, %t, want %q", got, result.Failed(), c.crashing)
				}
				if got := strings.Join(stranded, " "); got != c.stranded || result.TimedOut != c.timedOut {
					t.Errorf("%q are not started, timed out %t", got, result.TimedOut)
				}
			})
		})
	}
}

// TestOnceEndsAtWhatCanNeverStart: a pod that no later attempt can start ends the run at once, with the reason; the
// pods that are not done are stopped. A pull may fail, or make no progress, for --pull-timeout.
func TestOnceEndsAtWhatCanNeverStart(t *testing.T) {
	gone := &runtime.ReasonError{Reason: "ErrImagePull", Err: &runtime.PermanentError{
		Fix: "check the name", Err: errors.New("hub/a:1: not found"),
	}}
	for _, c := range []struct {
		name        string
		manifest    string
		prepare     func(r *onceTest)
		want        string
		least, most time.Duration
	}{
		{name: "the registry has no such image", manifest: onceManifest("a", "Never", "absent:1"),
			prepare: func(r *onceTest) { r.runtime.Fail("Pull", gone) },
			want:    "container c: ErrImagePull: hub/a:1: not found", most: time.Second},
		{name: "never pulled", manifest: onceManifest("a", "Never", "absent:1\", imagePullPolicy: \"Never"),
			want: "container c: ErrImageNeverPull: ", most: time.Second},
		{name: "the registry is out of reach", manifest: onceManifest("a", "Never", "absent:1"),
			prepare: func(r *onceTest) { r.runtime.Fail("Pull", errors.New("no such host")) },
			want:    "within 2m0s (--pull-timeout): ", least: 2 * time.Minute, most: 123 * time.Second},
		{name: "the registry hangs", manifest: onceManifest("a", "Never", "absent:1"),
			prepare: func(r *onceTest) { r.runtime.SlowPull("absent:1", &pod.Progress{}) },
			want:    "no progress for 2m0s", least: 2 * time.Minute, most: 123 * time.Second},
		{name: "a large image", manifest: onceManifest("a", "Never", "absent:1"),
			prepare: func(r *onceTest) {
				r.runtime.SlowPull("absent:1", &pod.Progress{})
				for i := range 20 {
					r.after(time.Duration(i)*time.Minute, func() {
						r.runtime.SlowPull("absent:1", &pod.Progress{Fetched: int64(i), Total: 100})
					})
				}
				r.runtime.AddImage("job:1", fake.Script{Run: time.Minute})
			},
			want: "no progress for 2m0s", least: 21 * time.Minute, most: 22 * time.Minute},
		{name: "a program that is not in the image", manifest: onceManifest("a", "OnFailure", "broken:1"),
			prepare: func(r *onceTest) {
				r.runtime.AddImage("broken:1", fake.Script{StartError: &runtime.PermanentError{Err: errors.New("no program")}})
			},
			want: "container c: StartError: ", most: time.Second},
		{name: "more CPUs than the machine has", manifest: onceManifest("a", "Never", "job:1\", resources: {requests: {cpu: 64}}, imagePullPolicy: \"IfNotPresent"),
			prepare: func(r *onceTest) { r.o.machine.Resources = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")} },
			want:    "OutOfcpu: Node didn't have enough resource: cpu, requested: 64000, used: 0, capacity: 2000", most: time.Second},
		{name: "another node", manifest: onceManifest("a", "Never", "job:1", "  nodeSelector: {disk: ssd}\n"),
			want: "NodeAffinity: the node does not have what nodeSelector asks for: disk=ssd", most: time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			onFake(t, func(r *onceTest) {
				r.once.PullTimeout = 2 * time.Minute
				if c.prepare != nil {
					c.prepare(r)
				}
				result, took := r.mustRun(c.manifest, onceManifest("slow", "Never", "slow:1"))
				r.wantTook(took, c.least, c.most)
				key := pod.Key{Namespace: "default", Name: "a-n"}
				why := fmt.Sprint(result.Stuck[key])
				if len(result.Stuck) != 1 || !strings.Contains(why, c.want) || !result.Failed() || result.TimedOut {
					t.Errorf("%q, %+v", why, result)
				}
				if r.there() != "" {
					t.Errorf("there is %q", r.there())
				}
			})
		})
	}
}

// TestOnceChecksBeforeItStarts: what is wrong with the options of a run ends it before anything is started.
func TestOnceChecksBeforeItStarts(t *testing.T) {
	onFake(t, func(r *onceTest) {
		wrong := errors.New("wrong")
		r.once.Desired = func(want manifest.Desired) error {
			if len(want.Pods) != 1 {
				t.Errorf("%d pods", len(want.Pods))
			}
			return wrong
		}
		if _, err := r.run(onceManifest("a", "Never", "job:1")); !errors.Is(err, wrong) || len(r.runtime.Calls()) > 0 {
			t.Errorf("%v, called %v", err, r.runtime.Calls())
		}
	})
}

// TestOnceMeasuresContainers: the time of each container is measured, not taken from a status' seconds.
func TestOnceMeasuresContainers(t *testing.T) {
	onFake(t, func(r *onceTest) {
		r.runtime.AddImage("job:1", fake.Script{Run: 1250 * time.Millisecond})
		result, _ := r.mustRun(onceManifest("a", "Never", "job:1"))
		took := result.Runs[pod.Key{Namespace: "default", Name: "a-n"}]["c"]
		if took < 1240*time.Millisecond || took > 1300*time.Millisecond {
			t.Errorf("%s", took)
		}
	})
}
