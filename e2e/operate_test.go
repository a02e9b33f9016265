package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podrun.io/podrun/internal/test/testimage"
)

// events are what happened to a pod, as REASON:COUNT.
func (n *node) events(pod string) map[string]int32 {
	n.t.Helper()
	var list v1.EventList
	must(n.t, json.Unmarshal([]byte(n.ok("events", pod, "-o", "json")), &list))
	out := map[string]int32{}
	for _, e := range list.Items {
		out[e.Reason] += e.Count
	}
	return out
}

const crasher = `apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  containers:
  - name: app
    image: ` + box + `
    imagePullPolicy: Never
    command: [sh, -c, "echo about to fail; exit 7"]
`

// Why a pod does not run is told by get in a line, by describe with its log and what happened, and still so
// when podrun has been killed.
func TestWhyAPodDoesNotRun(t *testing.T) {
	n := newNode(t)
	n.write("crash.yaml", fmt.Sprintf(crasher, "crash"))
	n.write("bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containers: []}\n")
	n.serve()
	n.await("the events of a crash loop", func() error {
		got := n.events("crash")
		if got["Started"] < 2 || got["Created"] != got["Started"] || got["BackOff"] < 1 || got["Pulled"] < 2 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	n.await("the reason", func() error { // a status comes when the instance has been reaped
		if got := n.ok("get", "pods"); !strings.Contains(got, "app: exit code 7; next attempt in ") {
			return fmt.Errorf("get:\n%s", got)
		}
		return nil
	})
	if bad := n.ok("events"); !strings.Contains(bad, "FailedValidation   node/n ") || !strings.Contains(bad, "bad.yaml:4: spec.containers: Required value") {
		t.Errorf("events of a bad manifest:\n%s", bad)
	}
	for range 2 {
		story := n.ok("describe", "pod", "crash")
		for _, want := range []string{"/crash.yaml\n", "Exit Code:    7\n", "Last Log of app:\n  about to fail\n", "Next Attempt: ", "  BackOff   "} {
			if !strings.Contains(story, want) {
				t.Errorf("describe has no %q:\n%s", want, story)
			}
		}
		if n.serving == nil {
			break
		}
		if r := n.run("get", "pods"); strings.Contains(r.stderr, "not running") {
			t.Errorf("serve runs: %v", r)
		}
		n.serving.Process.Kill()
		<-n.ended
		n.serving = nil
	}
	if r := n.run("get", "pods"); !strings.Contains(r.stderr, "warning: podrun serve is not running; this is how pods were ") {
		t.Errorf("serve was killed: %v", r)
	}
}

// Commands ask the serve that runs, or ran last, how it reads manifests, and say what it would do.
func TestCommandsAskServe(t *testing.T) {
	n := newNode(t)
	n.write("web.yaml", manifest("web", "Always", forever))
	n.serve()
	n.ready("web-n")
	if r := n.run("diff"); r.code != 0 || !strings.HasPrefix(r.stdout, "= keep default/web-n ") {
		t.Errorf("diff: %v", r)
	}
	// What get prints of the pod is the pod, and its files can be named instead of it.
	printed := n.path("printed.yaml")
	must(t, os.WriteFile(printed, []byte(n.ok("get", "pod", "web", "-o", "manifest")), 0o600))
	if r := n.run("diff", printed); r.code != 0 || !strings.HasPrefix(r.stdout, "= keep default/web-n ") {
		t.Errorf("diff of the printed manifest: %v", r)
	}
	if got := n.ok("get", "-f", printed, "-o", "name"); got != "pod/web-n\n" {
		t.Errorf("get -f: %s", got)
	}
	if r := n.runIn(n.ok("get", "pods", "-o", "yaml"), "validate", "-"); r.code != 0 || !strings.Contains(r.stderr, "1 pod valid") {
		t.Errorf("validate of what get prints: %v", r)
	}
	if got := n.ok("__complete", "images", "rm", ""); !strings.Contains(got, box+"\n") {
		t.Errorf("completion of images: %s", got)
	}
	if got := n.ok("images", "-o", "json"); !strings.Contains(got, `"name": "`+box+`"`) || !strings.Contains(got, `"used": true`) {
		t.Errorf("images -o json: %s", got)
	}
	if r := n.run("wait", "wbe", "--for=condition=Ready", "--timeout=10m"); r.code != 1 ||
		!strings.Contains(r.stderr, `pods "wbe" not found, and no manifest of podrun serve names it`) || !strings.Contains(r.stderr, "did you mean web?") {
		t.Errorf("wait for a pod that will never be: %v", r)
	}
	n.end(syscall.SIGTERM)
	n.write("new.yaml", manifest("new", "Always", forever))
	if r := n.run("get", "pods"); !strings.Contains(r.stderr, "warning: podrun serve is not running; this is how pods were ") ||
		!strings.Contains(r.stderr, "warning: podrun serve would create default/new-n; podrun diff shows it in full\n") {
		t.Errorf("get while serve is down: %v", r)
	}
	if r := n.run("diff"); r.code != 1 || !strings.Contains(r.stdout, "+ create default/new-n ") || !strings.Contains(r.stdout, "= keep default/web-n ") {
		t.Errorf("diff while serve is down: %v", r)
	}
}

// A pod is reached: its log over restarts, what it writes from now on, a port that it has for itself alone, what
// it takes of the machine.
func TestReachAPod(t *testing.T) {
	n := newNode(t)
	n.write("web.yaml", manifest("web", "Always", "mkdir /www; echo hello >/www/index.html; httpd -p 127.0.0.1:80 -h /www; "+
		"while true; do echo tick; i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; sleep 0.05; done")+
		"    ports: [{name: http, containerPort: 80}]\n")
	n.write("job.yaml", manifest("job", "OnFailure", "echo run $(cat /proc/sys/kernel/random/uuid); sleep 1; exit 1"))
	n.serve()
	n.ready("web-n")

	n.await("the job's log", func() error {
		if r := n.run("logs", "job"); !strings.HasPrefix(r.stdout, "run ") {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	lines, stop := n.follow("logs", "-f", "job")
	first, second := <-lines, <-lines // of two instances
	if !strings.HasPrefix(first, "run ") || !strings.HasPrefix(second, "run ") || first == second {
		t.Errorf("logs -f over a restart: %q, %q", first, second)
	}
	if code := stop(); code != 130 {
		t.Errorf("logs -f, interrupted: exit %d", code)
	}
	lines, stop = n.follow("attach", "web")
	if got := <-lines; got != "tick" {
		t.Errorf("attach: %q", got)
	}
	stop()

	lines, stop = n.follow("port-forward", "web", ":http")
	var address string
	if _, err := fmt.Sscanf(<-lines, "Forwarding from %s -> 80", &address); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if body, err := get("http://" + address + "/"); err != nil || body != "hello\n" {
			t.Errorf("port-forward: %q, %v", body, err)
		}
	}
	if code := stop(); code != 130 {
		t.Errorf("port-forward, interrupted: exit %d", code)
	}
	n.await("top", func() error {
		got := n.ok("top", "web", "--interval=200ms", "--no-headers")
		var pod, name, cpu, memory string
		if _, err := fmt.Sscan(got, &pod, &name, &cpu, &memory); err != nil || pod != "web-n" || name != "c" || cpu == "0m" || !strings.HasSuffix(memory, "Mi") {
			return fmt.Errorf("%q: %w", got, errors.Join(err, errors.New("not what was expected")))
		}
		return nil
	})
	lines, stop = n.follow("top", "web", "--watch", "--interval=200ms", "--no-headers")
	n.await("a line of what the container has used", func() error {
		if got := <-lines; !topLine.MatchString(got) {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	if code := stop(); code != 130 {
		t.Errorf("top --watch, interrupted: exit %d", code)
	}
}

// TestTopOfTheLastHour: top --watch begins with what serve has measured before.
func TestTopOfTheLastHour(t *testing.T) {
	n := newNode(t)
	n.write("a.yaml", manifest("web", "Always", forever))
	n.serve("--history")
	n.ready("web-n")
	// Each top measures 30 times 100 ms; serve once in 10 s.
	first := regexp.MustCompile(`^\d\d:\d\d:\d\d, measured over 100ms; recent: the last 5m, each character 10s$`)
	later := regexp.MustCompile(`^web-n +c +\d+m +.* [▁▂▃▄▅▆▇█ ]+ +\d+Mi +[▁▂▃▄▅▆▇█]{2,30}$`)
	n.await("a line that is older than top", func() error {
		lines, stop := n.follow("top", "web", "--watch", "--interval=100ms", "--no-headers")
		defer stop()
		if about, got := <-lines, <-lines; !first.MatchString(about) || !later.MatchString(got) {
			return fmt.Errorf("%q, %q", about, got)
		}
		return nil
	})
}

// topLine is what top --watch prints of a container that it has measured at least three times.
var topLine = regexp.MustCompile(`^web-n +c +\d+m +[▁▂▃▄▅▆▇█]{3,30} +\d+Mi +[▁▂▃▄▅▆▇█]{3,30}$`)

// follow starts a command that goes on and returns its lines, and what interrupts it.
func (n *node) follow(args ...string) (lines <-chan string, stop func() (code int)) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	cmd := n.command(ctx, args...)
	out, err := cmd.StdoutPipe()
	must(n.t, err)
	must(n.t, cmd.Start())
	c := make(chan string, 10000)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(c)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			select {
			case c <- scan.Text():
			default: // nobody reads any more
			}
		}
	})
	ended := sync.OnceValue(func() int {
		defer cancel()
		_ = cmd.Process.Signal(syscall.SIGINT)
		reading.Wait()
		_ = cmd.Wait()
		return cmd.ProcessState.ExitCode()
	})
	n.t.Cleanup(func() { ended() })
	return c, ended
}

// The examples all come to their result, and the jobs among them in order.
func TestExamples(t *testing.T) {
	n := bareNode(t)
	archive, err := testimage.Busybox(n.dir, "docker.io/library/busybox:1.36")
	must(t, err)
	must(t, os.Rename(archive, n.path("box.tar")))
	private, err := testimage.Busybox(n.dir, "registry.example:5000/team/app:1.0") // TestImagePullSecrets pulls one
	must(t, err)
	n.ok("images", "load", n.path("box.tar"), private)
	examples, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(examples) < 5 {
		t.Fatalf("%v, %v", examples, err)
	}
	for _, example := range examples {
		text, err := os.ReadFile(example)
		must(t, err)
		fit := strings.ReplaceAll(string(text), "/var/lib/podrun-example", n.path("example"))
		fit = strings.ReplaceAll(fit, "hostPort: 8080", "hostPort: "+freePort(t))
		if filepath.Base(example) != "sidecar.yaml" { // its tail looks every second, and has to show the end
			// busybox as a first process heeds no TERM
			fit = strings.ReplaceAll(fit, "terminationGracePeriodSeconds: 5", "terminationGracePeriodSeconds: 0")
		}
		n.write(filepath.Base(example), fit)
	}
	n.serve()
	n.await("the manifests to be read", func() error {
		if r := n.run("get", "deployment", "shop"); r.code != 0 {
			return errors.New(r.stderr)
		}
		return nil
	})
	services := []string{"web", "db", "app", "private", "deployment/shop"}
	n.ok(append([]string{"wait", "--for=condition=Ready", "--timeout=5m"}, services...)...)
	n.ok("wait", "--for=condition=Ready", "--timeout=5m", "-n", "kube-system", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
	n.ok("wait", "--for=phase=Succeeded", "--timeout=5m", "prepare", "report")
	n.ok("wait", "jobs", "--all", "--for=condition=Complete", "--timeout=5m")
	if got := n.ok("logs", "report", "-c", "show-log"); got != "step 1\nstep 2\nstep 3\n" {
		t.Errorf("the sidecar shows %q", got)
	}
	if got := n.ok("logs", "app"); got == "" {
		t.Error("the application has not heard of the database")
	}
	if got := n.ok("get", "pods", "-A"); strings.Contains(got, "Error") || len(n.pods()) < 12 { // more while one of nightly.yaml runs
		t.Errorf("get:\n%s", got)
	}
}
