package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
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

// TestJob: a Job comes to its end although podrun is killed in the middle, a failed index is tried again, no index
// runs again after its success, and not when podrun starts once more.
func TestJob(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.path("out"), 0o777))
	lines := func(name string) map[string]int {
		text, _ := os.ReadFile(n.path("out", name))
		count := map[string]int{}
		for _, line := range strings.Fields(string(text)) {
			count[line]++
		}
		return count
	}
	n.write("job.yaml", indexed(n))
	n.serve()
	n.await("two indexes to begin", func() error {
		if begun := lines("begun"); len(begun) < 2 {
			return fmt.Errorf("begun: %v", begun)
		}
		return nil
	})
	n.end(syscall.SIGKILL)
	n.serve()
	n.ok("wait", "job/render", "--for=condition=Complete", "--timeout=120s")
	check := func() {
		t.Helper()
		begun, done := lines("begun"), lines("done")
		if fmt.Sprint(begun) != "map[0:1 1:1 2:2 3:1]" || fmt.Sprint(done) != "map[0:1 1:1 2:1 3:1]" {
			t.Errorf("begun %v, done %v", begun, done)
		}
	}
	check()
	if out := n.ok("get", "jobs", "render", "-o", "jsonpath={.status.succeeded} {.status.failed} {.status.completedIndexes}"); out != "4 1 0-3" {
		t.Errorf("status: %q", out)
	}
	n.end(syscall.SIGKILL)
	n.serve()
	n.ok("wait", "job/render", "--for=condition=Complete", "--timeout=60s")
	check()
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
}
