package e2e

import (
	"os"
	"strings"
	"testing"
)

// TestOnceFailsACrashLoop: a service that crashes again and again fails the run, with its log and a report that says
// so; one that stays up does not.
func TestOnceFailsACrashLoop(t *testing.T) {
	n := newNode(t)
	report := n.path("report.xml")
	r := n.once(manifest("crash", "Always", "echo the reason; exit 5"), "--report="+report)
	text, err := os.ReadFile(report)
	must(t, err)
	if r.code != 1 || !strings.Contains(r.stdout, "the reason") || !strings.Contains(string(text), "<failure message=") {
		t.Errorf("%v\n%s", r, text)
	}
	if r := n.once(withGrace(manifest("web", "Always", "sleep 1000"), 1), "--rm"); r.code != 0 {
		t.Error(r)
	}
}

// TestOnceInCI: with CI set, lines are printed as they come; --exit-code-from has the exit code; what never can start
// ends the run at once; reports of containers are merged.
func TestOnceInCI(t *testing.T) {
	n := newNode(t)
	n.env = append(n.env, "CI=true", "GITHUB_ACTIONS=true")
	report := n.path("report.xml")
	job := manifest("job", "Never", `echo said; echo '<testsuite name="mine"><testcase name="x"/></testsuite>' >/out/r.xml; exit 7`)
	job = inContainer(job, "volumeMounts: [{name: out, mountPath: /out}]")
	job = strings.Replace(job, "spec:\n", "spec:\n  volumes: [{name: out, emptyDir: {}}]\n", 1)
	job = strings.Replace(job, "metadata:\n", "metadata:\n  annotations: {podrun.io/junit: \"out:*.xml\"}\n", 1)
	r := n.once(job, "--exit-code-from=job", "--report="+report)
	text, err := os.ReadFile(report)
	must(t, err)
	if r.code != 7 || !strings.HasPrefix(r.stdout, "::group::job/") || !strings.Contains(r.stdout, " | said\n") ||
		!strings.HasSuffix(r.stdout, "::endgroup::\n") || !strings.Contains(string(text), `<testsuite name="mine"`) {
		t.Errorf("%v\n%s", r, text)
	}
	r = n.once(strings.Replace(manifest("gone", "OnFailure", "true"), box, "podrun.invalid/absent:1", 1)+"---\n"+
		withGrace(manifest("slow", "Never", "echo up; sleep 1000"), 1), "--pull-timeout=3s")
	if r.code != 1 || !strings.Contains(r.stderr, "cannot start: its image cannot be pulled within 3s") {
		t.Error(r)
	}
	n.gone("slow-n")
	if r := n.once(manifest("lost", "OnFailure", "true"), "--timeout=60s"); r.code != 0 {
		t.Error(r)
	}
}
