package e2e

import (
	"context"
	"encoding/xml"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestOnceSucceeds(t *testing.T) {
	n := newNode(t)
	r := n.once(manifest("job", "Never", "echo the output; echo a complaint >&2; exit 0"), "--logs=all")
	if r.code != 0 || !strings.Contains(r.stdout, "the output") {
		t.Fatal(r)
	}
	p := n.pod("job-n")
	if p == nil || p.Status.Phase != "Succeeded" {
		t.Fatalf("status afterwards: %s", asJSON(p))
	}
	if s := p.Status.ContainerStatuses[0].State.Terminated; s == nil || s.ExitCode != 0 || s.Reason != "Completed" {
		t.Errorf("container afterwards: %s", asJSON(p.Status.ContainerStatuses))
	}
	// Each once is a new run of what had completed.
	if r := n.once(manifest("job", "Never", "echo the output; echo a complaint >&2; exit 0"), "--logs=all", "--rm"); r.code != 0 || !strings.Contains(r.stdout, "the output") {
		t.Fatal(r)
	}
	if p := n.pod("job-n"); p != nil {
		t.Errorf("--rm left %s", asJSON(p.Status))
	}
}

func TestOnceFails(t *testing.T) {
	n := newNode(t)
	report := n.path("report.xml")
	r := n.once(manifest("good", "Never", "echo fine")+"---\n"+manifest("bad", "Never", "echo the reason; exit 7"), "--report="+report)
	if r.code != 1 {
		t.Fatal(r)
	}
	// Only what failed is shown by default.
	if !strings.Contains(r.stdout, "the reason") || strings.Contains(r.stdout, "fine") {
		t.Error(r)
	}
	if p := n.pod("bad-n"); p.Status.Phase != "Failed" || p.Status.ContainerStatuses[0].State.Terminated.ExitCode != 7 {
		t.Errorf("status: %s", asJSON(p.Status))
	}
	data, err := os.ReadFile(report)
	must(t, err)
	if err := xml.Unmarshal(data, new(struct{})); err != nil || strings.Count(string(data), "<testcase") != 2 || strings.Count(string(data), "<failure") != 1 {
		t.Errorf("report (%v):\n%s", err, data)
	}
}

func TestOnceTakesNoBadManifest(t *testing.T) {
	n := newNode(t)
	file := n.path("bad.yaml")
	text := manifest("good", "Never", "true") + "---\n" + strings.Replace(manifest("bad", "Never", "true"), "image: "+box, "imagge: x", 1)
	must(t, os.WriteFile(file, []byte(text), 0o644))
	r := n.run("once", "--manifests="+file, "--node-name=n")
	if r.code != 2 || !strings.Contains(r.stderr, file+":") || !strings.Contains(r.stderr, "imagge") {
		t.Error(r)
	}
	if left := n.pods(); len(left) != 0 {
		t.Errorf("something was started: %s", asJSON(left))
	}
	// validate says the same.
	v := n.run("validate", file)
	if v.code == 0 || !strings.Contains(v.stdout+v.stderr, "imagge") {
		t.Error(v)
	}
}

func TestOnceRefusesWhatIsNotSupported(t *testing.T) {
	n := newNode(t)
	r := n.once(manifest("job", "Never", "true", "affinity: {podAffinity: {}}"))
	if r.code != 2 || !strings.Contains(r.stderr, "affinity") {
		t.Error(r)
	}
}

func TestOnceUsage(t *testing.T) {
	n := bareNode(t)
	if r := n.run("once", "--no-such-flag"); r.code != 2 {
		t.Error(r)
	}
	if r := n.run("once", "--manifests="+n.path("nowhere")); r.code != 2 {
		t.Error(r)
	}
}

func TestOnceWithoutContainerd(t *testing.T) {
	n := bareNode(t)
	r := n.once(manifest("job", "Never", "true"), "--containerd-address="+n.path("no.sock"))
	if r.code != 3 || strings.Count(strings.TrimSpace(r.stderr), "\n") > 2 || !strings.Contains(r.stderr, n.path("no.sock")) {
		t.Error(r)
	}
}

func TestOnceWithoutRunc(t *testing.T) {
	n := bareNode(t)
	cmd := n.command(context.Background(), "once", "--manifests=-", "--containerd-address=embedded")
	cmd.Env = []string{"PATH=" + n.path("empty")}
	r := outcome(t, cmd, manifest("job", "Never", "true"))
	if r.code != 3 || !strings.Contains(r.stderr, "runc") {
		t.Error(r)
	}
}

func TestOnceNeedsRoot(t *testing.T) {
	n := bareNode(t)
	// Where nobody can reach it.
	dir, err := os.MkdirTemp("", "pn")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	binary := dir + "/podrun"
	if out, err := exec.Command("cp", setup.podrun, binary).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(binary, "once", "--manifests=-", "--run-dir="+n.path("run"))
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	r := outcome(t, cmd, manifest("job", "Never", "true"))
	if r.code != 2 && r.code != 3 || !strings.Contains(r.stderr, "root") {
		t.Error(r)
	}
}

func TestOnceTimeout(t *testing.T) {
	n := newNode(t)
	r := n.once(manifest("slow", "Never", forever), "--timeout=2s")
	if r.code != 124 {
		t.Error(r)
	}
	n.gone("slow-n")
}

// refused runs a manifest of a pod that cannot start as things are: once gives up on it and says why. How long it
// takes to find that out is the machine's affair.
func (n *node) refused(manifest string, why []string, args ...string) {
	n.t.Helper()
	for timeout := time.Second; ; timeout *= 2 {
		r := n.once(manifest, append(args, "--timeout="+timeout.String())...)
		told := !slices.ContainsFunc(why, func(text string) bool { return !strings.Contains(r.stderr, text) })
		if r.code == 124 && told {
			return
		}
		if r.code != 124 || timeout > patience/2 {
			n.t.Errorf("refused for %q: %v", why, r)
			return
		}
	}
}

func TestOnceInterrupted(t *testing.T) {
	n := newNode(t)
	cmd := n.command(context.Background(), "once", "--manifests=-", "--node-name=n")
	cmd.Stdin, cmd.Stderr = strings.NewReader(manifest("slow", "Never", forever)), n.log
	must(t, cmd.Start())
	n.awaitPod("slow-n", "to be ready", isReady)
	must(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait() // the code is what counts
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit %d, want 130", code)
	}
	n.gone("slow-n")
}

func TestOnceLeavesServicesRunning(t *testing.T) {
	n := newNode(t)
	web := manifest("web", "Always", forever)
	if r := n.once(web); r.code != 0 {
		t.Fatal(r)
	}
	pid := n.mainPID(n.pod("web-n"), "c")
	// A second run adopts it.
	if r := n.once(web); r.code != 0 {
		t.Fatal(r)
	}
	if again := n.mainPID(n.pod("web-n"), "c"); again != pid {
		t.Errorf("the second run replaced process %d by %d", pid, again)
	}
	if r := n.once(web, "--rm"); r.code != 0 {
		t.Fatal(r)
	}
	n.gone("web-n")
}

func TestOnFailureRestartsUntilSuccess(t *testing.T) {
	n := newNode(t)
	m := inContainer(manifest("job", "OnFailure", "echo x >>/data/runs; [ $(wc -l </data/runs) = 2 ]", "volumes: [{name: data, emptyDir: {}}]"),
		"volumeMounts: [{name: data, mountPath: /data}]")
	if r := n.once(m); r.code != 0 {
		t.Fatal(r)
	}
	s := n.pod("job-n").Status.ContainerStatuses[0]
	last, now := s.LastTerminationState.Terminated, s.State.Terminated
	if s.RestartCount != 1 || last == nil || last.ExitCode != 1 || now == nil {
		t.Fatalf("status: %s", asJSON(s))
	}
	// The first restart is at once, the others are not.
	if pause := now.StartedAt.Sub(last.FinishedAt.Time); pause >= 9*time.Second {
		t.Errorf("restarted after %v", pause)
	}
}

// after is a manifest that starts after others.
func after(manifest, names string) string {
	return strings.Replace(manifest, "metadata:\n", "metadata:\n  annotations: {podrun.io/after: "+asJSON(names)+"}\n", 1)
}

func TestOnceInOrder(t *testing.T) {
	n := newNode(t)
	data := n.path("data")
	must(t, os.Mkdir(data, 0o755))
	says := func(name, policy, script string) string {
		return inContainer(manifest(name, policy, "echo "+name+" >>/data/log; "+script, "volumes: [{name: data, hostPath: {path: "+data+"}}]"),
			"volumeMounts: [{name: data, mountPath: /data}]")
	}
	// By name they would come in the opposite order.
	all := after(says("a", "Never", "true"), "b, default/c") + "---\n" + after(says("b", "Always", forever), "c") + "---\n" + says("c", "OnFailure", "sleep 0.5; echo end >>/data/log")
	if r := n.once(all); r.code != 0 {
		t.Fatal(r)
	}
	log, err := os.ReadFile(filepath.Join(data, "log"))
	must(t, err)
	if got := strings.Fields(string(log)); strings.Join(got, " ") != "c end b a" {
		t.Errorf("in this order: %q", got)
	}
	// What comes after a failure is not started, nor what comes after that.
	report := n.path("report.xml")
	r := n.once(after(says("q", "Never", "true"), "r")+"---\n"+after(says("r", "Never", "true"), "s")+"---\n"+says("s", "Never", "exit 3"), "--report="+report)
	if r.code != 1 || !strings.Contains(r.stderr, "default/q-n was not started: it starts after default/r-n") {
		t.Error(r)
	}
	if p := n.pod("q-n"); p != nil {
		t.Errorf("left of a pod that was not started: %s", asJSON(p.Status))
	}
	xml, err := os.ReadFile(report)
	must(t, err)
	if !strings.Contains(string(xml), `failures="1" errors="2"`) {
		t.Errorf("report: %s", xml)
	}
	for names, want := range map[string]string{
		"b": "pods wait for each other: default/a-n after default/b-n after default/a-n", "nobody": "no manifest of this run makes pod default/nobody-n",
	} {
		r := n.once(after(manifest("a", "Never", "true"), names) + "---\n" + after(manifest("b", "Never", "true"), "a"))
		if r.code != 2 || !strings.Contains(r.stderr, want) {
			t.Errorf("after %s: %v", names, r)
		}
	}
}

func TestOnceInterruptedTwice(t *testing.T) {
	n := newNode(t)
	cmd := n.command(context.Background(), "once", "--manifests=-", "--node-name=n")
	deaf := withGrace(manifest("deaf", "Never", "trap '' TERM; while :; do sleep 0.05; done"), 3600)
	cmd.Stdin, cmd.Stderr = strings.NewReader(deaf), n.log
	must(t, cmd.Start())
	n.awaitPod("deaf-n", "to be ready", isReady)
	must(t, cmd.Process.Signal(os.Interrupt))
	n.await("the pod to be asked", func() error {
		log, err := os.ReadFile(n.log.Name())
		if err == nil && !strings.Contains(string(log), "stopping") {
			err = errors.New("not said")
		}
		return err
	})
	must(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait() // the code is what counts
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit %d, want 130", code)
	}
	n.gone("deaf-n")
}

// TestOnceTwiceAtOnce: of two that run the same job at the same time one starts it, and both have its result.
func TestOnceTwiceAtOnce(t *testing.T) {
	n := newNode(t)
	dir := n.path("shared")
	must(t, os.Mkdir(dir, 0o777))
	job := manifest("job", "Never", "mkdir /shared/alone || touch /shared/not-alone; sleep 1; rmdir /shared/alone",
		"volumes: [{name: shared, hostPath: {path: "+dir+"}}]") + "    volumeMounts: [{name: shared, mountPath: /shared}]\n"
	for range 4 {
		var both [2]*exec.Cmd
		for i := range both {
			both[i] = n.command(context.Background(), "once", "--manifests=-", "--node-name=n")
			both[i].Stdin, both[i].Stderr = strings.NewReader(job), n.log
			must(t, both[i].Start())
		}
		for _, cmd := range both {
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, "not-alone")); !errors.Is(err, os.ErrNotExist) {
			t.Fatal("the job ran twice at the same time", err)
		}
	}
}
