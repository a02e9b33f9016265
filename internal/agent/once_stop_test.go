package agent

import (
	"strings"
	"testing"
	"time"

	"podrun.io/podrun/internal/agent/result"
	"podrun.io/podrun/internal/pod"
	"podrun.io/podrun/internal/runtime/fake"
)

// TestOnceKeepsLogsOfWhatItStops: when once stops a pod, it gives notice before it removes the log, when
// nothing writes to it any more; at the time-out, an interrupt, a second one, and with --rm.
func TestOnceKeepsLogsOfWhatItStops(t *testing.T) {
	for _, c := range []struct {
		name    string
		policy  string
		once    OnceOptions
		signals int
		grace   time.Duration
	}{
		{name: "time-out", policy: "Never", once: OnceOptions{Timeout: 5 * time.Second}, grace: 30 * time.Second},
		{name: "interrupt", policy: "Never", signals: 1, grace: 30 * time.Second},
		{name: "two interrupts", policy: "Never", signals: 2, grace: time.Second},
		{name: "a service", policy: "Always", once: OnceOptions{Remove: true}, grace: 30 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			onFake(t, func(r *onceTest) {
				r.runtime.IgnoreTerm("c")
				r.once = c.once
				var known result.Result
				var at time.Time
				r.once.Finished = func(is result.Result) { known, at = is, time.Now() }
				var removing []string
				r.once.Removing = func(key pod.Key, uid pod.UID) {
					seen, err := r.runtime.List(t.Context())
					for _, o := range seen {
						for _, c := range o.Containers {
							if c.State != pod.Exited || err != nil {
								t.Errorf("%v: it still has %v, %v", key, c, err)
							}
						}
					}
					removing = append(removing, key.String())
				}
				if c.signals > 0 {
					r.after(5*time.Second, r.interrupt)
				}
				if c.signals > 1 {
					r.after(6*time.Second, func() { close(r.hurry) })
				}
				result, _ := r.mustRun(onceManifest("a", c.policy, "web:1"))
				if took := time.Since(at); (took - c.grace).Abs() > 2*time.Second {
					t.Errorf("stopped for %s", took)
				}
				if got := strings.Join(removing, " "); got != "default/a-n" || !known.Stops[pod.KeyOf(result.Pods[0])] {
					t.Errorf("told of %q; to be stopped: %v", got, known.Stops)
				}
			})
		})
	}
}

// TestOnceMeasuresPods: the time of a pod is the exact time until it had its result or, if it got none, until
// the wait ended; of a pod that was not started it is 0.
func TestOnceMeasuresPods(t *testing.T) {
	const ready = "  containers: [{name: c, image: \"web:1\", readinessProbe: {exec: {command: [a]}, initialDelaySeconds: 3}}]\n"
	after := func(manifest, pods string) string {
		return strings.Replace(manifest, "metadata: {", "metadata: {annotations: {podrun.io/after: \""+pods+"\"}, ", 1)
	}
	onFake(t, func(r *onceTest) {
		r.runtime.AddImage("job:2", fake.Script{Run: 2500 * time.Millisecond})
		r.once.Timeout = 7200 * time.Millisecond
		time.Sleep(700 * time.Millisecond)
		result, _ := r.mustRun(
			onceManifest("job", "Never", "job:2"),
			onceManifest("late", "Never", "slow:1"),
			after(onceManifest("next", "Never", "job:2"), "job"),
			after(onceManifest("never", "Never", "job:2"), "bad"),
			onceManifest("bad", "Never", "bad:1"),
			strings.Replace(onceManifest("web", "Always", "web:1"), "  containers: [{name: c, image: \"web:1\"}]\n", ready, 1))
		for name, want := range map[string]time.Duration{
			"job": 2500 * time.Millisecond, "late": 7200 * time.Millisecond, "next": 2500 * time.Millisecond,
			"never": 0, "bad": time.Second, "web": 3 * time.Second,
		} {
			got := result.Durations[pod.Key{Namespace: "default", Name: name + "-n"}]
			if (got-want).Abs() > 300*time.Millisecond || got != 0 && got < want {
				t.Errorf("%s took %s, want %s", name, got, want)
			}
		}
	})
}
