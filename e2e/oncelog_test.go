package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestOncePrintsWhatStoppedContainersWrite: what a container writes while it is stopped belongs to what once
// prints, however it comes to be stopped; once does not wait for a reader after a second interrupt.
func TestOncePrintsWhatStoppedContainersWrite(t *testing.T) {
	n := newNode(t)
	const flushes = `trap "echo flushing; sleep 0.2; echo flushed; exit 9" TERM; echo up; >/up; while :; do sleep 0.05; done`
	job := withGrace(manifest("job", "Never", flushes), 20)
	service := inContainer(withGrace(manifest("web", "Always", flushes), 20), "readinessProbe: {exec: {command: [test, -e, /up]}, periodSeconds: 1}")
	const want = "up\nflushing\nflushed\n"
	report := n.path("report.xml")
	for name, run := range map[string]func() (result, int){
		"time-out":         func() (result, int) { return n.once(job, "--timeout=6s"), 124 },
		"time-out, --rm":   func() (result, int) { return n.once(job, "--timeout=6s", "--rm", "--report="+report), 124 },
		"a service of all": func() (result, int) { return n.once(service, "--rm", "--logs=all", "--report="+report), 0 },
		"an interrupt":     func() (result, int) { return n.interrupted(job, syscall.SIGINT, "--report="+report), 130 },
		"SIGTERM, all":     func() (result, int) { return n.interrupted(job, syscall.SIGTERM, "--logs=all"), 143 },
	} {
		r, code := run()
		if r.code != code || r.stdout != want {
			t.Errorf("%s: want exit code %d and %q: %v", name, code, want, r)
		}
		// The whole log of what did not finish stays, and nothing of what did.
		said := strings.Contains(r.stderr, "the logs of default/job-n stay in "+n.path("log"))
		if text := n.retainedLog("job-n"); (code != 0) != (strings.Count(text, "flushed") == 1) || said != (code != 0) {
			t.Errorf("%s: the log that stays has %q: %v", name, text, r)
		}
		must(t, os.RemoveAll(n.path("log")))
		// In the report it is the output and, if the job was not done, the text of the error.
		text, err := os.ReadFile(report)
		if times := strings.Count(string(text), strings.TrimSpace(want)); err == nil && times != min(code, 1)+1 {
			t.Errorf("%s: the report has it %d times: %s", name, times, text)
		}
		_ = os.Remove(report)
	}
	if r := n.interrupted(job, syscall.SIGINT, "--logs=none"); r.stdout != "" {
		t.Error(r)
	}
	deaf := withGrace(manifest("deaf", "Never", "trap 'echo heard' TERM; echo up; while :; do sleep 0.05; done"), 3600)
	if r := n.interrupted(deaf, 0); r.code != 130 || r.stdout != "up\nheard\n" {
		t.Errorf("interrupted twice: %v", r)
	}
	if r := n.run("down", "--all", "--grace-period=0"); r.code != 0 { // what was left in that second
		t.Error(r)
	}
	for _, name := range []string{"job-n", "web-n", "deaf-n"} {
		n.gone(name)
	}
}

// retainedLog returns the log files of pods that begin with a name.
func (n *node) retainedLog(name string) string {
	n.t.Helper()
	files, err := filepath.Glob(n.path("log") + "/default_" + name + "_*/c/0.log")
	must(n.t, err)
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(n.t, err)
		all.Write(text)
	}
	return all.String()
}

// awaitLog waits until a pod's log has a line.
func (n *node) awaitLog(name, line string) {
	n.t.Helper()
	n.await(name+" to say "+line, func() error {
		if r := n.run("logs", name); !strings.Contains(r.stdout, line) {
			return fmt.Errorf("it says %v", r)
		}
		return nil
	})
}

// interrupted runs a manifest once and sends the signal as soon as its pod is ready and has said so; 0: SIGINT
// twice, the second one when the pod has heard of the first.
func (n *node) interrupted(manifest string, signal syscall.Signal, args ...string) result {
	n.t.Helper()
	cmd := n.command(context.Background(), append([]string{"once", "--manifests=-", "--node-name=n"}, args...)...)
	var out, errOut strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(manifest), &out, &errOut
	must(n.t, cmd.Start())
	name := strings.Fields(manifest[strings.Index(manifest, "name: ")+len("name: "):])[0] + "-n"
	n.awaitPod(name, "to be ready", isReady)
	n.awaitLog(name, "up\n")
	if signal != 0 {
		must(n.t, cmd.Process.Signal(signal))
	} else {
		must(n.t, cmd.Process.Signal(os.Interrupt))
		n.awaitLog(name, "heard\n")
		must(n.t, cmd.Process.Signal(os.Interrupt))
	}
	began := time.Now()
	_ = cmd.Wait() // the code is what counts
	if took := time.Since(began); signal == 0 && took > 5*time.Second {
		n.t.Errorf("it ended %s after the second interrupt", took)
	}
	return result{code: cmd.ProcessState.ExitCode(), stdout: out.String(), stderr: errOut.String()}
}
