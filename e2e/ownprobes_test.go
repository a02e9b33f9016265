package e2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// slowStarter is a pod that is up two seconds after its start, and is killed if its liveness is asked before. It writes
// to /t/log when it starts and when it is up.
func slowStarter(n *node, value string) string {
	return inContainer(manifest("slow", "Always", "echo start >>/t/log; sleep 2; touch /up; echo up >>/t/log; "+forever,
		"volumes: [{name: t, hostPath: {path: "+n.path("shared")+"}}]"),
		"volumeMounts: [{name: t, mountPath: /t}]", "env: [{name: V, value: "+value+"}]",
		"startupProbe: {exec: {command: [test, -e, /up]}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 60}",
		"readinessProbe: {exec: {command: [test, -e, /up]}, periodSeconds: 1, timeoutSeconds: 20}",
		"livenessProbe: {exec: {command: [test, -e, /up]}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 1}")
}

// slowReady waits until the slow starter's so manieth instance is ready, and complains if it is before it is up.
func (n *node) slowReady(starts int) *v1.Pod {
	n.t.Helper()
	var ready *v1.Pod
	n.await(fmt.Sprintf("instance %d to be ready", starts), func() error {
		before, _ := os.ReadFile(n.path("shared", "log")) // none before the first
		if got := strings.Count(string(before), "start"); got < starts {
			return fmt.Errorf("%d starts", got)
		}
		p := n.pod("slow-n")
		if p == nil {
			return errors.New("no pod")
		}
		if err := isReady(p); err != nil {
			return err
		}
		after, err := os.ReadFile(n.path("shared", "log"))
		must(n.t, err)
		if s := p.Status.ContainerStatuses[0]; strings.Count(string(after), "start") != starts || !strings.HasSuffix(string(after), "start\nup\n") || s.Started == nil || !*s.Started {
			n.t.Fatalf("ready, but its %d instances wrote %q: %s", starts, after, asJSON(s))
		}
		ready = p
		return nil
	})
	return ready
}

// TestReadyByItsOwnProbes: an instance is ready, and asked for its liveness, after its own startup probe has
// succeeded, whatever an earlier one of the same pod and manifest had said.
func TestReadyByItsOwnProbes(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.path("shared"), 0o777))
	n.write("slow.yaml", slowStarter(n, "a"))
	n.serve()
	first := n.slowReady(1)
	fresh := func(p *v1.Pod, sameManifest bool) {
		t.Helper()
		if p.Status.ContainerStatuses[0].RestartCount != 0 || p.Status.ContainerStatuses[0].ContainerID == first.Status.ContainerStatuses[0].ContainerID ||
			(p.UID == first.UID) != sameManifest {
			t.Errorf("%s after %s", asJSON(p), asJSON(first))
		}
	}
	// What it has learnt stays over podrun's end.
	n.end(syscall.SIGKILL)
	n.serve()
	n.said("msg=serving")
	if p := n.slowReady(1); p.Status.ContainerStatuses[0].ContainerID != first.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("not adopted: %s", asJSON(p.Status))
	}
	// The manifest goes and comes back.
	n.remove("slow.yaml")
	n.gone("slow-n")
	n.write("slow.yaml", slowStarter(n, "a"))
	fresh(n.slowReady(2), true)
	// And while podrun is down, which ends right after it has begun anew.
	n.end(syscall.SIGTERM)
	n.remove("slow.yaml")
	n.serve()
	n.gone("slow-n")
	n.write("slow.yaml", slowStarter(n, "a"))
	n.awaitPod("slow-n", "to run", func(p *v1.Pod) error {
		if s := p.Status.ContainerStatuses; len(s) == 0 || s[0].State.Running == nil {
			return errors.New(asJSON(s))
		}
		return nil
	})
	n.end(syscall.SIGKILL)
	n.serve()
	fresh(n.slowReady(3), true)
	// An edit and back.
	n.write("slow.yaml", slowStarter(n, "b"))
	fresh(n.slowReady(4), false)
	n.write("slow.yaml", slowStarter(n, "a"))
	fresh(n.slowReady(5), true)
	n.write("slow.yaml", slowStarter(n, "b"))
	n.await("the next instance to begin", func() error {
		if text, err := os.ReadFile(n.path("shared", "log")); err != nil || strings.Count(string(text), "start") != 6 {
			return fmt.Errorf("%s, %w", text, err)
		}
		return nil
	})
	n.end(syscall.SIGKILL)
	n.write("slow.yaml", slowStarter(n, "a"))
	n.serve()
	fresh(n.slowReady(7), true)
	// An instance that crashed has to start up again too.
	n.kill(n.pod("slow-n"), "c")
	n.restarted("slow-n", 1)
	if p := n.slowReady(8); p.Status.ContainerStatuses[0].RestartCount != 1 {
		t.Errorf("%s", asJSON(p.Status))
	}
}
