package e2e

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/test/testimage"
)

const graceful = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 60
  containers:
  - name: app
    image: ` + box + `
    imagePullPolicy: Never
    command: [sh, -c, "trap 'echo asked to end; exit 0' TERM; echo started; while :; do sleep 0.1; done"]
  - name: other
    image: ` + box + `
    imagePullPolicy: Never
    command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 0.1; done"]
`

// TestRestartCommand: podrun restart restarts what it names, gracefully and once, with serve and with once as the owner. Two
// restarts at the same time are one or two, never none; serve may be killed at any moment in between.
func TestRestartCommand(t *testing.T) {
	n := newNode(t)
	n.write("web.yaml", graceful)
	n.write("crash.yaml", fmt.Sprintf(crasher, "crash"))
	n.serve()
	before := n.ready("web-n")
	if out := n.ok("restart", "web", "app"); out != "pod/web-n container app restarted\n" {
		t.Errorf("said %q", out)
	}
	after := n.pod("web-n")
	if after.UID != before.UID || after.Status.ContainerStatuses[0].RestartCount != 1 || after.Status.ContainerStatuses[1].RestartCount != 0 {
		t.Errorf("after the restart of one container: %+v", after.Status.ContainerStatuses)
	}
	if log := n.ok("logs", "web", "-c", "app", "--previous"); !strings.Contains(log, "asked to end") {
		t.Errorf("not ended gracefully: %q", log)
	}
	n.ok("restart", "pod/web")
	for _, s := range n.pod("web-n").Status.ContainerStatuses {
		if s.RestartCount < 1 || s.State.Running == nil {
			t.Errorf("after the restart of the pod: %+v", s)
		}
	}
	n.awaitPod("crash-n", "a long back-off", func(p *v1.Pod) error {
		if s := p.Status.ContainerStatuses[0]; s.RestartCount < 2 || s.State.Waiting == nil {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	starts := n.events("crash")["Started"]
	n.ok("restart", "crash")
	n.await("the start", func() error {
		if now := n.events("crash")["Started"]; now <= starts {
			return fmt.Errorf("%d starts", now)
		}
		return nil
	})

	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { n.run("restart", "web", "app") })
	}
	both.Wait()
	if c := n.pod("web-n").Status.ContainerStatuses[0]; c.RestartCount < 3 || c.RestartCount > 4 {
		t.Errorf("two at once: %+v", c)
	}

	// The request outlives the process that is killed before it carries it out.
	count := n.pod("web-n").Status.ContainerStatuses[0].RestartCount
	must(t, n.serving.Process.Signal(syscall.SIGSTOP))
	done := make(chan result, 1)
	go func() { done <- n.run("restart", "web", "app") }()
	n.await("the request", func() error {
		if all, err := os.ReadDir(n.path("run", "restarts")); err != nil || len(all) == 0 {
			return fmt.Errorf("there is none: %w", err)
		}
		return nil
	})
	n.end(syscall.SIGKILL)
	n.serve()
	if r := <-done; r.code != 0 {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	if now := n.pod("web-n").Status.ContainerStatuses[0].RestartCount; now != count+1 {
		t.Errorf("%d restarts, then %d", count, now)
	}

	for _, args := range [][]string{{"restart", "nobody"}, {"restart", "web", "nothing"}} {
		if r := n.run(args...); r.code != 1 {
			t.Errorf("%v: exit code %d", args, r.code)
		}
	}
	if r := n.run("delete", "pod", "web"); r.code != 2 || !strings.Contains(r.stderr, "/web.yaml: remove that, and the pod is removed") {
		t.Errorf("delete: exit code %d, %s", r.code, r.stderr)
	}
	n.end(syscall.SIGTERM)
	if r := n.run("restart", "web"); r.code != 1 || !strings.Contains(r.stderr, "no podrun process runs it") {
		t.Errorf("without serve: exit code %d, %s", r.code, r.stderr)
	}
}

const job = `apiVersion: v1
kind: Pod
metadata: {name: job}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 5
  containers:
  - name: app
    image: ` + box + `
    imagePullPolicy: Never
    command: [sh, -c, "[ -e /data/again ] && exit 0; touch /data/again; sleep infinity"]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]
`

// TestRestartUnderOnce: the job of once is restarted whatever its policy, and its result is that of its last run.
func TestRestartUnderOnce(t *testing.T) {
	n := newNode(t)
	b := n.onceBeside(job)
	n.awaitPod("job-n", "a container that runs", func(p *v1.Pod) error {
		if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Running == nil {
			return fmt.Errorf("%+v", p.Status)
		}
		return nil
	})
	n.ok("restart", "job")
	b.ends(0)
}

// TestImagesWakePods: a pod that waits for its image starts when it is loaded, not when its back-off is over.
func TestImagesWakePods(t *testing.T) {
	n := newNode(t)
	archive, err := testimage.Busybox(n.dir, "localhost:1/late:1")
	must(t, err)
	n.write("late.yaml", strings.NewReplacer("web}", "late}", box, "localhost:1/late:1", "Never", "IfNotPresent").Replace(graceful))
	n.serve()
	n.awaitPod("late-n", "a back-off", func(p *v1.Pod) error {
		for _, s := range p.Status.ContainerStatuses {
			if s.State.Waiting == nil || s.State.Waiting.Reason != "ImagePullBackOff" {
				return fmt.Errorf("%+v", s.State)
			}
		}
		return nil
	})
	n.ok("images", "load", archive)
	n.ready("late-n")
	n.await("an event for each container", func() error {
		if got := n.events("late"); got["Pulled"] != 2 {
			return fmt.Errorf("events: %v", got)
		}
		return nil
	})
}

// TestRestartWorkload: podrun restart deployment/NAME restarts its pods one after the other. One that is not ready again
// keeps it from the rest.
func TestRestartWorkload(t *testing.T) {
	n := newNode(t)
	n.write("web.yaml", `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  replicas: 3
  serviceName: web
  minReadySeconds: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      volumes: [{name: v, emptyDir: {}}]
      containers:
      - name: app
        image: `+box+`
        imagePullPolicy: Never
        command: [sh, -c, "trap exit TERM; while :; do sleep 0.1; done"]
        volumeMounts: [{name: v, mountPath: /v}]
        readinessProbe: {exec: {command: ["test", "!", "-e", "/v/bad"]}, periodSeconds: 1}
`)
	n.serve()
	for i := range 3 {
		n.ready(fmt.Sprintf("web-%d-n", i))
	}
	restarts := func() (counts string) {
		for i := range 3 {
			counts += fmt.Sprint(n.pod(fmt.Sprintf("web-%d-n", i)).Status.ContainerStatuses[0].RestartCount)
		}
		return counts
	}
	said := n.ok("restart", "statefulset/web")
	if want := "pod/web-2-n restarted\npod/web-1-n restarted\npod/web-0-n restarted\n"; said != want {
		t.Errorf("said %q", said)
	}
	if got := restarts(); got != "111" {
		t.Errorf("restarts: %s", got)
	}
	n.ok("exec", "web-1", "--", "touch", "/v/bad")
	r := n.run("restart", "sts/web", "--timeout", "10s")
	if r.code != 1 || !strings.Contains(r.stderr, "pod web-1-n is not ready 10s after its restart; not restarted: web-0-n") {
		t.Errorf("%d: %s", r.code, r.stderr)
	}
	if got := restarts(); got != "122" {
		t.Errorf("restarts after one that is not ready: %s", got)
	}
}
