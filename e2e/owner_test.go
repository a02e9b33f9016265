package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/test"
)

// beside is a once that runs beside something else.
type beside struct {
	n    *node
	cmd  *exec.Cmd
	said test.Buffer
}

// onceBeside begins a once on a manifest.
func (n *node) onceBeside(manifest string, args ...string) *beside {
	n.t.Helper()
	b := &beside{n: n, cmd: n.command(context.Background(), append([]string{"once", "--manifests=-", "--node-name=n"}, args...)...)}
	b.cmd.Stdin, b.cmd.Stdout, b.cmd.Stderr = strings.NewReader(manifest), &b.said, &b.said
	must(n.t, b.cmd.Start())
	n.t.Cleanup(func() { _ = b.cmd.Process.Kill() }) // it has ended, unless the test failed
	return b
}

// ends waits for its end and its exit code.
func (b *beside) ends(want int) {
	b.n.t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = b.cmd.Wait() // the code is what counts
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		b.n.t.Fatal("once does not end")
	}
	if code := b.cmd.ProcessState.ExitCode(); code != want {
		b.n.t.Errorf("once: exit %d, want %d: %s", code, want, b.said.String())
	}
}

// counted is a job, or a service, that writes a line to /shared/NAME each time it starts and ends when /shared/go is
// there.
func counted(n *node, name, policy string) string {
	return inContainer(manifest(name, policy, "echo ran >>/shared/"+name+`; trap "exit 0" TERM; until [ -e /shared/go-`+name+` ]; do sleep 0.05; done`,
		"volumes: [{name: shared, hostPath: {path: "+n.path("shared")+"}}]"), "volumeMounts: [{name: shared, mountPath: /shared}]")
}

// lets lets a counted pod end.
func (n *node) lets(name string) {
	n.t.Helper()
	must(n.t, os.WriteFile(n.path("shared", "go-"+name), nil, 0o644))
}

// ran complains unless a counted pod has started so often.
func (n *node) ran(name string, times int) {
	n.t.Helper()
	text, err := os.ReadFile(n.path("shared", name))
	if got := strings.Count(string(text), "ran"); got != times || err != nil {
		n.t.Errorf("%s ran %d times, want %d: %v", name, got, times, err)
	}
}

// busy waits until serve has had time to do wrong: it has started a pod of its own and seen it listed again.
func (n *node) busy(name string) {
	n.t.Helper()
	n.write(name+".yaml", manifest(name, "Always", forever))
	n.kill(n.ready(name+"-n"), "c")
	n.restarted(name+"-n", 1)
	n.remove(name + ".yaml")
	n.gone(name + "-n")
}

// isUnowned complains unless the pod is shown as one that no process keeps.
func isUnowned(p *v1.Pod) error {
	ready := v1.ConditionUnknown
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			ready = c.Status
		}
	}
	if p.Status.Reason != "Unowned" || ready != v1.ConditionUnknown || p.Status.ContainerStatuses[0].Ready {
		return errors.New(asJSON(p.Status))
	}
	return nil
}

// TestServeBesideOnce: serve neither ends nor restarts what a once runs, or has left running, on the same run
// directory.
func TestServeBesideOnce(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.path("shared"), 0o777))
	b := n.onceBeside(counted(n, "job", "Never"))
	id := n.awaitPod("job-n", "to run", isReady).Status.ContainerStatuses[0].ContainerID
	n.serve()
	n.busy("other")
	if s := n.pod("job-n").Status.ContainerStatuses[0]; s.ContainerID != id || s.State.Running == nil {
		t.Errorf("the job was touched: %s", asJSON(s))
	}
	// A killed serve that begins again neither.
	n.end(syscall.SIGKILL)
	n.serve()
	n.busy("other")
	n.lets("job")
	b.ends(0)
	n.ran("job", 1)
	n.busy("other")
	if p := n.pod("job-n"); p == nil || p.Status.Phase != v1.PodSucceeded {
		t.Errorf("after once has ended: %s", asJSON(p))
	}
	n.ran("job", 1)

	// A service that once has left running.
	service := counted(n, "web", "Always")
	n.onceBeside(service).ends(0)
	id = n.awaitPod("web-n", "to be nobody's", isUnowned).Status.ContainerStatuses[0].ContainerID
	same := func(when string, is func(*v1.Pod) error) {
		t.Helper()
		if s := n.awaitPod("web-n", when, is).Status.ContainerStatuses[0]; s.ContainerID != id || s.RestartCount != 0 {
			t.Errorf("%s: %s, want container %s", when, asJSON(s), id)
		}
		n.ran("web", 1)
	}
	n.busy("other")
	same("beside a serve without its manifest", isUnowned)
	n.end(syscall.SIGTERM)
	n.serve()
	n.busy("other")
	same("beside a serve that began after it", isUnowned)
	n.write("web.yaml", service)
	n.await("serve to take it", func() error {
		if got := n.run("describe", "pod", "web").stdout; !strings.Contains(got, n.manifests) {
			return errors.New(got)
		}
		return nil
	})
	same("taken by serve", isReady)
	n.kill(n.pod("web-n"), "c")
	n.restarted("web-n", 1) // it is serve's now
	n.remove("web.yaml")
	n.gone("web-n")
}

// TestPodsThatNobodyKeeps: beside a serve without their manifests, what a once has left, or was killed over, is shown as
// nobody's, whatever has become of it, until somebody takes it; and down removes it.
func TestPodsThatNobodyKeeps(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.path("shared"), 0o777))
	n.serve()
	n.write("own.yaml", manifest("own", "Always", forever))
	n.ready("own-n")
	job, web := counted(n, "job", "Never"), counted(n, "web", "Always")
	b := n.onceBeside(job)
	n.awaitPod("job-n", "to run", isReady)
	must(t, b.cmd.Process.Kill())
	_ = b.cmd.Wait() // it was killed
	n.onceBeside(web).ends(0)
	n.lets("job")
	n.kill(n.awaitPod("web-n", "to be nobody's", isUnowned), "c")
	n.awaitPod("job-n", "to be nobody's", isUnowned)
	const why = "no process keeps the pod; this is how it was at "
	if r := n.run("get", "pods"); strings.Count(r.stdout, " 0/1     Unowned ") != 2 || strings.Count(r.stdout, why) != 2 ||
		strings.Count(r.stdout, "1/1     Running ") != 1 || r.stderr != "" {
		t.Errorf("%v", r)
	}
	if r := n.run("wait", "web", "--for=condition=Ready", "--timeout=1s"); r.code != 1 || !strings.Contains(r.stderr, why) {
		t.Errorf("%v", r)
	}
	// Taken again they are as they are: one has ended, the other is started anew.
	n.onceBeside(web).ends(0)
	n.ran("web", 2)
	n.write("job.yaml", job)
	n.awaitPod("job-n", "to be shown as it ended", phase(v1.PodSucceeded, ""))
	n.ran("job", 1)
	// What serve keeps is serve's to end, what nobody keeps goes.
	if r := n.run("down", "web", "own"); r.code != 1 || !strings.Contains(r.stderr, "podrun serve is running") ||
		!strings.Contains(r.stderr, "own-n") || !strings.Contains(r.stderr, "hint: ") || n.pod("web-n") == nil {
		t.Errorf("%v", r)
	}
	n.ok("down", "web")
	if p := n.pod("web-n"); p != nil {
		t.Errorf("down has left %s", asJSON(p.Status))
	}
	n.busy("other")
	n.ready("own-n")
}

// TestServeWaitsForAnOwner: a pod of a manifest of serve's that once runs is shown as another's, and serve takes it
// when it is free. A once is refused what serve runs.
func TestServeWaitsForAnOwner(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.path("shared"), 0o777))
	job := counted(n, "job", "Never")
	b := n.onceBeside(job)
	id := n.awaitPod("job-n", "to run", isReady).Status.ContainerStatuses[0].ContainerID
	n.write("job.yaml", job)
	n.write("web.yaml", manifest("web", "Always", forever))
	n.serve()
	web := n.ready("web-n")
	holder := fmt.Sprintf("podrun once (process %d)", b.cmd.Process.Pid)
	n.await("the owner to be named", func() error {
		pods, events := n.http("/pods"), n.ok("events", "job")
		if !strings.Contains(pods, "OwnedByOther") || !strings.Contains(pods, holder) || !strings.Contains(events, "OwnedByOther") ||
			!strings.Contains(events, holder) {
			return fmt.Errorf("/pods: %s\nevents: %s", pods, events)
		}
		return nil
	})
	if s := n.pod("job-n").Status.ContainerStatuses[0]; s.ContainerID != id || s.State.Running == nil {
		t.Errorf("the job was touched: %s", asJSON(s))
	}
	// serve has the other: nothing of a once with both is started.
	r := n.once(manifest("new", "Never", "true") + "---\n" + manifest("web", "Always", forever))
	if want := fmt.Sprintf("pod default/web-n is run by podrun serve (process %d) since ", n.serving.Process.Pid); r.code != 2 ||
		!strings.Contains(r.stderr, want) {
		t.Errorf("want exit 2 and %q: %v", want, r)
	}
	if p := n.pod("new-n"); p != nil {
		t.Errorf("started: %s", asJSON(p.Status))
	}
	n.lets("job")
	b.ends(0)
	n.await("serve to take the job", func() error {
		if pods := n.http("/pods"); strings.Contains(pods, "OwnedByOther") {
			return errors.New(pods)
		}
		return nil
	})
	refused := fmt.Sprintf("pod default/job-n is run by podrun serve (process %d) since ", n.serving.Process.Pid)
	report := n.path("report.xml") // of an earlier run
	must(t, os.WriteFile(report, []byte(`<testsuites tests="1" failures="0"/>`), 0o600))
	if r := n.once(job, "--report="+report); r.code != 2 || !strings.Contains(r.stderr, refused) {
		t.Errorf("want exit 2 and %q: %v", refused, r)
	}
	if text, err := os.ReadFile(report); err != nil || !strings.Contains(string(text), "is run by podrun serve") {
		t.Errorf("the report of a refused run: %s, %v", text, err)
	}
	// A completed pod runs again after a reboot only.
	n.awaitPod("job-n", "to be shown as completed", phase(v1.PodSucceeded, ""))
	n.ran("job", 1)
	if p := n.ready("web-n"); p.Status.ContainerStatuses[0].ContainerID != web.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("serve's own was replaced: %s", asJSON(p.Status))
	}
}
