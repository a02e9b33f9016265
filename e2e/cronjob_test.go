package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cron is a CronJob whose runs add a line, the name of the pod, to a file of the machine.
func cron(n *node, name, meta, schedule string) string {
	return `---
apiVersion: batch/v1
kind: CronJob
metadata: {name: ` + name + meta + `}
spec:
  schedule: "` + schedule + `"
  jobTemplate: {spec: {template: ` + writing(n, "hostname >>/out/"+name+"; sleep 1") + `}}
`
}

// TestCronJob: one CronJob runs once in this boot and one each minute, each time once although podrun is killed, and
// one runs when it is asked for.
func TestCronJob(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.path("out"), 0o777))
	runs := func(name string, want int) {
		t.Helper()
		// The next minute may be a minute away.
		await(t, time.Minute+patience, fmt.Sprintf("%d runs of %s", want, name), func() error {
			if all := n.written(name); len(all) < want {
				return fmt.Errorf("runs: %v", all)
			}
			return nil
		})
	}
	n.write("cron.yaml", cron(n, "boot", ", annotations: {podrun.io/schedule: boot}", "@yearly")+
		cron(n, "tick", "", "* * * * *")+cron(n, "never", "", "0 0 30 2 *"))
	n.serve()
	runs("boot", 1)
	n.end(syscall.SIGKILL)
	n.serve()
	if out := n.ok("create", "job", "now", "--from=cronjob/never"); out != "job.batch/now created\n" {
		t.Errorf("create: %q", out)
	}
	n.ok("wait", "job/now", "--for=condition=Complete", "--timeout=60s")
	runs("tick", 1)
	n.end(syscall.SIGKILL)
	n.serve()
	runs("tick", 2)
	if out := n.ok("get", "cronjobs", "--no-headers"); strings.Count(out, "\n") != 3 {
		t.Errorf("get: %q", out)
	}
	n.ok("wait", "jobs", "--all", "--for=condition=Complete", "--timeout=60s")
	n.end(syscall.SIGKILL)
	n.serve()
	for name, want := range map[string]int{"boot": 1, "tick": 0, "never": 1} {
		all := n.written(name)
		for run, times := range all {
			if times != 1 {
				t.Errorf("%s ran %d times", run, times)
			}
		}
		if want > 0 && len(all) != want {
			t.Errorf("%s has run %v, want %d", name, all, want)
		}
	}
	if out := n.ok("describe", "cronjob/never"); !strings.Contains(out, "SuccessfulCreate") || !strings.Contains(out, "Created job now") {
		t.Errorf("describe: %s", out)
	}
}
