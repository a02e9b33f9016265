package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/client"
	v1 "k8s.io/api/core/v1"
)

// indexed is a Job of four indexes, two at a time, each of which adds a line to a file of the machine. Index 2 fails
// at its first try.
func indexed(n *node) string {
	return `apiVersion: batch/v1
kind: Job
metadata: {name: render}
spec:
  completions: 4
  parallelism: 2
  completionMode: Indexed
  backoffLimitPerIndex: 1
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers:
      - name: c
        image: ` + box + `
        command:
        - sh
        - -c
        - |
          echo $JOB_COMPLETION_INDEX >>/out/begun
          sleep 3
          if [ $JOB_COMPLETION_INDEX = 2 ] && mkdir /out/failed 2>/dev/null; then exit 7; fi
          echo $JOB_COMPLETION_INDEX >>/out/done
        volumeMounts: [{name: out, mountPath: /out}]
      volumes: [{name: out, hostPath: {path: ` + n.path("out") + `}}]
`
}

// writing is the template of a pod that runs a shell command with the directory of the machine in which it writes.
func writing(n *node, command string) string {
	return fmt.Sprintf(`{spec: {restartPolicy: Never, terminationGracePeriodSeconds: 1,
  containers: [{name: c, image: %q, command: [sh, -c, %q], volumeMounts: [{name: out, mountPath: /out}]}],
  volumes: [{name: out, hostPath: {path: %q}}]}}`, box, command, n.path("out"))
}

// written returns how often each line is in a file that containers write.
func (n *node) written(name string) map[string]int {
	text, _ := os.ReadFile(n.path("out", name))
	count := map[string]int{}
	for _, line := range strings.Fields(string(text)) {
		count[line]++
	}
	return count
}

// TestJob: a Job comes to its end although podrun is killed in the middle, a failed index is tried again, no index
// runs again after its success, and not when podrun starts once more.
func TestJob(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.path("out"), 0o777))
	n.write("job.yaml", indexed(n))
	n.serve()
	n.await("two indexes to begin", func() error {
		if begun := n.written("begun"); len(begun) < 2 {
			return fmt.Errorf("begun: %v", begun)
		}
		return nil
	})
	n.end(syscall.SIGKILL)
	n.serve()
	n.ok("wait", "job/render", "--for=condition=Complete", "--timeout=120s")
	check := func() {
		t.Helper()
		begun, done := n.written("begun"), n.written("done")
		if fmt.Sprint(begun) != "map[0:1 1:1 2:2 3:1]" || fmt.Sprint(done) != "map[0:1 1:1 2:1 3:1]" {
			t.Errorf("begun %v, done %v", begun, done)
		}
	}
	check()
	if out := n.ok("get", "jobs", "render", "-o", "jsonpath={.status.succeeded} {.status.failed} {.status.completedIndexes}"); out != "4 1 0-3" {
		t.Errorf("status: %q", out)
	}
	// All tries stay, with their logs, and nothing would change.
	stay := []string{"= keep default/render-0-n", "= keep default/render-1-n", "= keep default/render-2-n", "= keep default/render-2-r1-n", "= keep default/render-3-n"}
	n.diff(0, stay...)
	n.end(syscall.SIGKILL)
	n.serve()
	n.ok("wait", "job/render", "--for=condition=Complete", "--timeout=60s")
	check()
	n.diff(0, stay...)
}

// TestJobThroughKills: podrun is killed at the end of a Job's pods, again and again. Each pod runs once, and stays.
func TestJobThroughKills(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.path("out"), 0o777))
	n.write("job.yaml", `apiVersion: batch/v1
kind: Job
metadata: {name: many}
spec:
  completions: 12
  parallelism: 4
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: c, image: `+box+`, command: [sh, -c, "echo x >>/out/$JOB_COMPLETION_INDEX; sleep 1"], volumeMounts: [{name: out, mountPath: /out}]}
      volumes: [{name: out, hostPath: {path: `+n.path("out")+`}}]
`)
	for i := range 5 {
		n.serve()
		n.await("the next pods to end", func() error {
			if r := n.run("get", "jobs", "many", "-o", "jsonpath={.status.succeeded}"); r.stdout == "" || r.stdout == fmt.Sprint(i) {
				return fmt.Errorf("%v", r)
			}
			return nil
		})
		n.end(syscall.SIGKILL)
	}
	n.serve()
	n.ok("wait", "job/many", "--for=condition=Complete", "--timeout=120s")
	for i := range 12 {
		if text, err := os.ReadFile(n.path("out", fmt.Sprint(i))); err != nil || string(text) != "x\n" {
			t.Errorf("index %d: %q, %v", i, text, err)
		}
		if p := n.pod(fmt.Sprintf("many-%d-n", i)); p.Status.Phase != v1.PodSucceeded {
			t.Errorf("index %d: %s", i, p.Status.Phase)
		}
	}
	n.diff(0)
}

// TestJobWithoutAContainer: another program removes the container of a Job's pod while it runs. It starts again, and the
// Job is complete when it ends.
func TestJobWithoutAContainer(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.path("out"), 0o777))
	n.write("job.yaml", `apiVersion: batch/v1
kind: Job
metadata: {name: short}
spec: {template: `+writing(n, "echo x >>/out/begun; mkdir /out/first && sleep 600; true")+`}
`)
	n.serve()
	n.await("the pod to begin", func() error {
		if begun := n.written("begun"); begun["x"] != 1 {
			return fmt.Errorf("begun: %v", begun)
		}
		return nil
	})
	address := setup.address
	if address == "embedded" {
		address = n.path("run", "containerd", "containerd.sock")
	}
	must(t, askContainerd(address, filepath.Base(n.dir), func(ctx context.Context, c *client.Client) error {
		found, err := c.Containers(ctx)
		if err != nil || len(found) != 1 {
			return fmt.Errorf("%d containers: %w", len(found), err)
		}
		return c.ContainerService().Delete(ctx, found[0].ID()) // its process goes on, for now
	}))
	n.ok("wait", "job/short", "--for=condition=Complete", "--timeout=60s")
	if begun := n.written("begun"); begun["x"] != 2 {
		t.Errorf("begun: %v", begun)
	}
}

// TestJobOfOnce: once ends with the result of a Job.
func TestJobOfOnce(t *testing.T) {
	n := newNode(t)
	job := `apiVersion: batch/v1
kind: Job
metadata: {name: tests}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: ` + box + `, command: [sh, -c, "exit CODE"]}]
`
	for code, want := range map[string]int{"0": 0, "3": 1} {
		if r := n.once(strings.Replace(job, "CODE", code, 1), "--rm", "--timeout=20s"); r.code != want {
			t.Errorf("a Job that ends with %s: exit code %d, want %d:\n%s", code, r.code, want, r.stderr)
		}
	}
	for from, want := range map[string]int{"tests": 3, "tests/c": 3, "tests/d": 2, "rests": 2} {
		if r := n.once(strings.Replace(job, "CODE", "3", 1), "--rm", "--exit-code-from="+from); r.code != want {
			t.Errorf("--exit-code-from=%s: exit code %d, want %d:\n%s", from, r.code, want, r.stderr)
		}
	}
}
