package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	v1 "k8s.io/api/core/v1"
)

// rolledBackWhy is the annotation of a pod that is rolled back.
const rolledBackWhy = "podrun.io/rolled-back"

// changing is a pod that is rolled back when it is not ready after ten seconds. It runs a shell command, and is ready
// when that has made a file.
func changing(command, value string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: web
  annotations: {podrun.io/rollback: "true", podrun.io/progress-deadline-seconds: "10", podrun.io/restart-on-change: "true"}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: %q
    command: [sh, -c, %q]
    envFrom: [{configMapRef: {name: settings}}]
    readinessProbe: {exec: {command: [test, -e, /ready]}, periodSeconds: 1}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {VALUE: %q}
`, box, command, value)
}

// TestRollback: an edit, of the pod or of its ConfigMap, that does not become ready is taken back, which each command
// tells; not again after podrun was killed; and the next edit runs.
func TestRollback(t *testing.T) {
	n := newNode(t)
	// The second value is one with which it does not get ready.
	const works = "[ $VALUE != bad ] && touch /ready; echo $VALUE; exec sleep 1000"
	n.write("web.yaml", changing(works, "first"))
	n.serve()
	n.ready("web-n")
	n.ok("wait", "web", "--for=condition=Ready", "--timeout=30s")
	rolledBack := func(reason string) *v1.Pod {
		t.Helper()
		return n.awaitPod("web-n", "be rolled back", func(p *v1.Pod) error {
			why := p.Annotations[rolledBackWhy]
			for _, c := range p.Status.Conditions {
				if c.Type == v1.PodReady && c.Status == v1.ConditionTrue && strings.Contains(why, reason) {
					return nil
				}
			}
			return fmt.Errorf("rolled back: %q", why)
		})
	}
	says := func(want string) {
		t.Helper()
		if out := n.ok("logs", "web"); strings.TrimSpace(out) != want {
			t.Errorf("it says %q, want %q", out, want)
		}
	}
	n.write("web.yaml", changing("exit 7", "first"))
	rolledBack("exit code 7")
	says("first")
	n.write("web.yaml", changing(works, "bad"))
	n.awaitHistory("web", "Healthy RolledBack RolledBack") // else the first is seen again
	p := rolledBack("not ready")
	says("first")
	if got := n.run("wait", "web", "--for=condition=Ready", "--timeout=30s"); got.code != 1 || !strings.Contains(got.stderr, "rolled back") {
		t.Errorf("wait: %+v", got)
	}
	if out := n.ok("get", "pods"); !strings.Contains(out, "RolledBack: ") {
		t.Errorf("get: %s", out)
	}
	if got := n.http("/readyz"); !strings.Contains(got, "[-]rollback failed") || !strings.Contains(got, "default/web-n") {
		t.Errorf("/readyz: %s", got)
	}
	if out := n.http("/metrics"); !strings.Contains(out, `podrun_pod_rolled_back{namespace="default",pod="web-n",uid="`+string(p.UID)+`"} 1`) {
		t.Error("no metric")
	}
	if out := n.ok("events", "web"); !strings.Contains(out, "RolledBack") {
		t.Errorf("events: %s", out)
	}
	n.end(syscall.SIGKILL)
	n.serve()
	if now := rolledBack("not ready"); now.Status.ContainerStatuses[0].ContainerID != p.Status.ContainerStatuses[0].ContainerID {
		t.Error("it was started again")
	}
	n.write("web.yaml", changing(works, "third"))
	n.awaitPod("web-n", "run the next revision", func(p *v1.Pod) error {
		if p.Annotations[rolledBackWhy] != "" || !p.Status.ContainerStatuses[0].Ready {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	says("third")
	n.awaitHistory("web", "Healthy RolledBack RolledBack Healthy")
	if out := n.ok("undo", "web"); !strings.Contains(out, "rolled back to revision") {
		t.Errorf("undo: %s", out)
	}
	rolledBack("podrun undo")
	says("first")
	n.diff(0) // serve would change nothing
	if got := n.run("undo", "web"); got.code != 1 || !strings.Contains(got.stderr, "already") {
		t.Errorf("undo again: %+v", got)
	}
	n.remove("web.yaml")
	n.gone("web-n")
	if got := n.run("history", "web"); got.code == 0 {
		t.Errorf("the history of a removed pod: %+v", got)
	}
}

// TestRollbackToAnImage: the tag of an image that runs comes to refer to one that does not work. The edit with which
// that is pulled is taken back, and what ran runs again, also if the registry cannot be reached any more.
func TestRollbackToAnImage(t *testing.T) {
	n := newNode(t)
	h := newHub(t)
	const command = `[ -z "$BROKEN" ] || exit 7; touch /ready; exec sleep 1000`
	put := func(value string) {
		t.Helper()
		text := strings.Replace(changing(command, value), box, h.ref(), 1)
		n.write("web.yaml", strings.Replace(text, "  - name: c\n", "  - name: c\n    imagePullPolicy: Always\n    securityContext: {runAsUser: 0}\n", 1))
	}
	put("first")
	n.serve()
	n.ready("web-n")
	n.awaitHistory("web", "Healthy")
	first := n.pod("web-n").Status.ContainerStatuses[0].ImageID
	h.pushWith("BROKEN=1")
	put("second")
	n.awaitPod("web-n", "run the other image", func(p *v1.Pod) error {
		if s := p.Status.ContainerStatuses; len(s) == 0 || s[0].ImageID == "" || s[0].ImageID == first {
			return fmt.Errorf("not yet: %+v", s)
		}
		return nil
	})
	if out := n.ok("images", "prune"); strings.Contains(out, h.ref()+"@") {
		t.Errorf("pruned: %s", out)
	}
	h.down()
	p := n.awaitPod("web-n", "be rolled back", func(p *v1.Pod) error {
		if s := p.Status.ContainerStatuses; p.Annotations[rolledBackWhy] == "" || len(s) == 0 || !s[0].Ready {
			return fmt.Errorf("not yet: %+v", s)
		}
		return nil
	})
	_, digest, _ := strings.Cut(first, "@")
	if s := p.Status.ContainerStatuses[0]; s.ImageID != first || p.Spec.Containers[0].Image != h.ref()+"@"+digest {
		t.Errorf("it runs %s, as %s, want %s", s.ImageID, p.Spec.Containers[0].Image, first)
	}
	n.diff(0)
}

// pushWith pushes the tuned image with one more variable.
func (h *hub) pushWith(variable string) {
	h.t.Helper()
	image, err := tarball.ImageFromPath(setup.tuned, nil)
	must(h.t, err)
	config, err := image.ConfigFile()
	must(h.t, err)
	config = config.DeepCopy()
	config.Config.Env = append(config.Config.Env, variable)
	image, err = mutate.ConfigFile(image, config)
	must(h.t, err)
	h.push("tuned", image)
}

// TestAutoUpdate: what is pushed under the tag that a pod runs comes to run by itself, if it works.
func TestAutoUpdate(t *testing.T) {
	n := newNode(t)
	h := newHub(t)
	h.pushWith("VERSION=1")
	text := strings.Replace(changing(`[ -z "$BROKEN" ] || exit 7; touch /ready; echo "version $VERSION"; exec sleep 1000`, ""), box, h.ref(), 1)
	text = strings.Replace(text, `podrun.io/rollback: "true"`, "podrun.io/auto-update: registry", 1)
	n.write("web.yaml", strings.Replace(text, "  - name: c\n", "  - name: c\n    securityContext: {runAsUser: 0}\n", 1))
	n.serve("--auto-update-schedule=@every 1s", "--auto-update-jitter=0s")
	says := func(want string) {
		t.Helper()
		n.await("it to say "+want, func() error {
			if got := n.run("logs", "web"); strings.TrimSpace(got.stdout) != want {
				return fmt.Errorf("it says %v", got)
			}
			return nil
		})
	}
	says("version 1")
	n.awaitHistory("web", "Healthy")
	h.pushWith("VERSION=2")
	says("version 2")
	n.awaitHistory("web", "Healthy Healthy")
	if out := n.ok("get", "pod", "web", "-o", "manifest"); strings.Contains(out, "sha256:") || !strings.Contains(out, h.ref()) {
		t.Errorf("the manifest: %s", out)
	}
	h.pushWith("BROKEN=1")
	n.awaitHistory("web", "Healthy Healthy RolledBack")
	says("version 2")
	h.down()
	n.await("an event that tells of the registry", func() error {
		if out := n.ok("events", "web"); !strings.Contains(out, "AutoUpdateFailed") || strings.Count(out, "ImageUpdated") != 2 {
			return fmt.Errorf("events: %s", out)
		}
		return nil
	})
	n.diff(0)
	h.up()
	h.pushWith("VERSION=3")
	says("version 3")
	for _, wrong := range []string{"--auto-update-schedule=often", "--auto-update-jitter=-1s"} {
		if got := n.run("serve", wrong); got.code != 2 || !strings.Contains(got.stderr, strings.SplitN(wrong, "=", 2)[0]) {
			t.Errorf("%s: %v", wrong, got)
		}
	}
	n.write("web.yaml", strings.Replace(text, "metadata:\n  name: web\n  annotations: {", "metadata:\n  name: web\n  annotations: {podrun.io/rollback: \"false\", ", 1))
	if got := n.run("validate", n.manifests); got.code != 1 || !strings.Contains(got.stdout, "podrun.io/rollback") {
		t.Errorf("validate: %v: %s", got, got.stdout)
	}
}

// awaitHistory waits until the history of a pod has these results.
func (n *node) awaitHistory(pod, want string, flags ...string) {
	n.t.Helper()
	n.await("the history of "+pod, func() error {
		out := n.ok(append([]string{"history", pod}, flags...)...)
		var results []string
		for _, line := range strings.Split(strings.TrimSpace(out), "\n")[1:] {
			results = append(results, strings.Fields(strings.Replace(line, "*", "", 1))[1])
		}
		if got := strings.Join(results, " "); got != want {
			return fmt.Errorf("%s, want %s", got, want)
		}
		return nil
	})
}
