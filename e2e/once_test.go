package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
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
	r := n.once(manifest("job", "Never", "true", "overhead: {cpu: \"1\"}"))
	if r.code != 2 || !strings.Contains(r.stderr, "overhead") {
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
	cmd := exec.Command(forNobody(t), "once", "--manifests=-", "--run-dir="+n.path("run"))
	cmd.Dir = "/"
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

// refused runs a manifest of a pod that cannot start as things are: once says why, and fails at once where nothing
// can change it, else when its time is over. How long it takes to find that out is the machine's affair.
func (n *node) refused(manifest string, why []string, args ...string) {
	n.t.Helper()
	for timeout := time.Second; ; timeout *= 2 {
		r := n.once(manifest, append(args, "--timeout="+timeout.String())...)
		told := !slices.ContainsFunc(why, func(text string) bool { return !strings.Contains(r.stderr, text) })
		if (r.code == 1 || r.code == 124) && told {
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
	if !strings.Contains(string(xml), `failures="1" errors="0" skipped="2"`) {
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

// TestOnceInterruptedTwice: the second time everything is killed and nothing is waited for.
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
	began := time.Now()
	_ = cmd.Wait() // the code is what counts
	if code, took := cmd.ProcessState.ExitCode(), time.Since(began); code != 130 || took > 10*time.Second {
		t.Errorf("exit %d, want 130, after %s", code, took)
	}
	// It may have been killed when it had removed the pod, before it released it.
	must(t, os.WriteFile(n.path("run", "owners", "default_gone-n"), nil, 0o600))
	if r := n.run("down", "--all", "--grace-period=0"); r.code != 0 { // what was left in that second
		t.Error(r)
	}
	n.gone("deaf-n")
}

// TestOnceTwiceAtOnce: of two that are to run the same job at the same time one runs it; the other says who has it.
func TestOnceTwiceAtOnce(t *testing.T) {
	n := newNode(t)
	dir := n.path("shared")
	must(t, os.Mkdir(dir, 0o777))
	job := inContainer(manifest("job", "Never", "echo ran >>/shared/runs; until [ -e /shared/go ]; do sleep 0.05; done",
		"volumes: [{name: shared, hostPath: {path: "+dir+"}}]"), "volumeMounts: [{name: shared, mountPath: /shared}]")
	for round := range 4 {
		var both [2]*exec.Cmd
		var said [2]strings.Builder
		ended := make(chan int, 2)
		for i := range both {
			both[i] = n.command(context.Background(), "once", "--manifests=-", "--node-name=n")
			both[i].Stdin, both[i].Stderr = strings.NewReader(job), &said[i]
			must(t, both[i].Start())
			go func() {
				_ = both[i].Wait() // the code is what counts
				ended <- i
			}()
		}
		refused := <-ended
		must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o644))
		owner := <-ended
		must(t, os.Remove(filepath.Join(dir, "go")))
		want := fmt.Sprintf("pod default/job-n is run by podrun once (process %d) since ", both[owner].Process.Pid)
		if code := both[refused].ProcessState.ExitCode(); code != 2 || !strings.Contains(said[refused].String(), want) {
			t.Errorf("the one that came second: exit %d, want 2 and %q: %s", code, want, said[refused].String())
		}
		if code := both[owner].ProcessState.ExitCode(); code != 0 {
			t.Errorf("the one that came first: exit %d: %s", code, said[owner].String())
		}
		runs, err := os.ReadFile(filepath.Join(dir, "runs"))
		if err != nil || strings.Count(string(runs), "ran") != round+1 {
			t.Fatalf("in %d rounds it ran %q, %v", round+1, runs, err)
		}
	}
}

// TestOnceTerminated: SIGTERM interrupts too, with its own exit code, and the report tells what was not done.
func TestOnceTerminated(t *testing.T) {
	n := newNode(t)
	report := n.path("report.xml")
	cmd := n.command(context.Background(), "once", "--manifests=-", "--node-name=n", "--report="+report)
	cmd.Stdin, cmd.Stderr = strings.NewReader(manifest("slow", "Never", forever)), n.log
	must(t, cmd.Start())
	n.awaitPod("slow-n", "to be ready", isReady)
	if text, err := os.ReadFile(report); err != nil || !strings.Contains(string(text), "did not come to its end") {
		t.Errorf("the report of a run that is cut off: %s, %v", text, err)
	}
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait() // the code is what counts
	if code := cmd.ProcessState.ExitCode(); code != 143 {
		t.Errorf("exit %d, want 143", code)
	}
	text, err := os.ReadFile(report)
	if err != nil || !strings.Contains(string(text), `errors="1"`) || !strings.Contains(string(text), "not done: ") {
		t.Errorf("report: %s, %v", text, err)
	}
	n.gone("slow-n")
}

// stuckNetwork makes a CNI plugin that runs the shell's line del instead of a DEL as long as the file broken is there.
// It returns the flags that have podrun use it.
func (n *node) stuckNetwork(del string) (broken string, flags []string) {
	t := n.t
	t.Helper()
	must(t, os.Mkdir(n.path("net.d"), 0o755))
	must(t, os.Mkdir(n.path("plugins"), 0o755))
	conf := `{"cniVersion":"1.0.0","name":"stuck","plugins":[{"type":"stuck"}]}`
	must(t, os.WriteFile(n.path("net.d", "10-stuck.conflist"), []byte(conf), 0o644))
	broken = n.path("broken")
	must(t, os.WriteFile(broken, nil, 0o644))
	plugin := `#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}' ;;
ADD) echo '{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"'$CNI_NETNS'"}],
	"ips":[{"address":"10.97.215.2/24","interface":0}]}' ;;
DEL) [ ! -e ` + broken + ` ] || { echo >>` + broken + `; ` + del + `; } ;;
esac
`
	must(t, os.WriteFile(n.path("plugins", "stuck"), []byte(plugin), 0o755))
	return broken, []string{"--cni-conf-dir=" + n.path("net.d"), "--cni-bin-dir=" + n.path("plugins")}
}

// awaitDel returns when the plugin of stuckNetwork was called for a DEL.
func (n *node) awaitDel(broken string) {
	n.t.Helper()
	n.await("a DEL", func() error {
		info, err := os.Stat(broken)
		if err == nil && info.Size() == 0 {
			err = errors.New("none yet")
		}
		return err
	})
}

// TestOnceInterruptedWhileCleaningUp: the first signal ends the wait for a network that hangs.
func TestOnceInterruptedWhileCleaningUp(t *testing.T) {
	n := newNode(t)
	broken, cni := n.stuckNetwork("exec sleep 30")
	cmd := n.command(context.Background(), append([]string{"once", "--manifests=-", "--node-name=n", "--cleanup-timeout=5m"}, cni...)...)
	cmd.Stdin, cmd.Stderr = strings.NewReader(manifest("job", "Never", "exit 0")), n.log
	must(t, cmd.Start())
	n.awaitDel(broken)
	n.awaitPod("job-n", "to succeed", func(p *v1.Pod) error {
		if p.Status.Phase != v1.PodSucceeded {
			return errors.New(string(p.Status.Phase))
		}
		return nil
	})
	began := time.Now()
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait() // the code is what counts
	if code, took := cmd.ProcessState.ExitCode(), time.Since(began); code != 143 || took > 5*time.Second {
		t.Errorf("exit %d, want 143, after %s", code, took)
	}
	said, err := os.ReadFile(n.log.Name())
	must(t, err)
	if !strings.Contains(string(said), "warning: pod default/job-n is not cleaned up: ") ||
		!strings.Contains(string(said), "interrupted: not waiting for the clean-up") || strings.Contains(string(said), "stopping") {
		t.Errorf("it said: %s", said)
	}
	must(t, os.Remove(broken))
	if r := n.run("down", "--all"); r.code != 0 {
		t.Error(r)
	}
	n.gone("job-n")
}

// TestDownSaysWhatItWaitsFor: a network that hangs is named, and the first signal ends the wait for it.
func TestDownSaysWhatItWaitsFor(t *testing.T) {
	n := newNode(t)
	broken, cni := n.stuckNetwork("exec sleep 30")
	if r := n.once(manifest("web", "Always", forever), cni...); r.code != 0 {
		t.Fatal(r)
	}
	cmd := n.command(context.Background(), "down", "web")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, n.log
	must(t, cmd.Start())
	n.await("down to say what it waits for", func() error {
		log, err := os.ReadFile(n.log.Name())
		if err == nil && !strings.Contains(string(log), "pod default/web-n: waiting for its network and its sandbox to be removed\n") {
			err = errors.New("not said")
		}
		return err
	})
	began := time.Now()
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait() // the code is what counts
	if code, took := cmd.ProcessState.ExitCode(), time.Since(began); code != 143 || took > 5*time.Second || out.Len() > 0 {
		t.Errorf("exit %d, want 143, after %s: %s", code, took, out.String())
	}
	must(t, os.Remove(broken))
	if r := n.run("down", "--all"); r.code != 0 {
		t.Error(r)
	}
	n.gone("web-n")
}

// TestOnceEndsThoughItCannotCleanUp: a network that cannot be taken down delays the result for the bound only, and is
// told of.
func TestOnceEndsThoughItCannotCleanUp(t *testing.T) {
	n := newNode(t)
	broken, cni := n.stuckNetwork(`echo '{"cniVersion":"1.0.0","code":100,"msg":"the plugin says no"}'; exit 1`)
	began := time.Now()
	r := n.once(manifest("job", "Never", "exit 0"), append(cni, "--cleanup-timeout=3s", "--rm")...)
	if r.code != 0 || !strings.Contains(r.stderr, "warning: pod default/job-n is not cleaned up: ") ||
		!strings.Contains(r.stderr, "the plugin says no") {
		t.Error(r)
	}
	if took := time.Since(began); took > patience/2 {
		t.Errorf("took %s", took)
	}
	must(t, os.Remove(broken))
	if r := n.run("down", "--all"); r.code != 0 {
		t.Error(r)
	}
	n.gone("job-n")
}

// TestOnceInterruptedWhileNobodyReads: what it prints keeps once no longer.
func TestOnceInterruptedWhileNobodyReads(t *testing.T) {
	n := newNode(t)
	read, write, err := os.Pipe()
	must(t, err)
	defer read.Close()
	cmd := n.command(context.Background(), "once", "--manifests=-", "--node-name=n", "--logs=all", "--rm")
	job := manifest("job", "Never", "head -c 1000000 /dev/zero | tr '\\0' '\\n'")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(job), write, n.log
	must(t, cmd.Start())
	must(t, write.Close())
	one := make([]byte, 1)
	_, err = read.Read(one) // from now on the pipe is full, or is about to be
	must(t, err)
	must(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait() // the code is what counts
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit %d, want 130", code)
	}
	n.gone("job-n")
}

// TestOnceOutlivesItsReader: when nobody reads its output any more, once ends its pods as at an interrupt; when their results
// are known, it goes on as if it were read.
func TestOnceOutlivesItsReader(t *testing.T) {
	for name, c := range map[string]struct {
		job    string
		stdout bool // who reads standard output goes, else standard error's reader
		want   int
	}{
		"before the results": {forever, false, 141},
		"afterwards":         {"head -c 1000000 /dev/zero | tr '\\0' '\\n'; exit 3", true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			read, write, err := os.Pipe()
			must(t, err)
			cmd := n.command(context.Background(), "once", "--manifests=-", "--node-name=n", "--logs=all", "--rm")
			cmd.Stdin = strings.NewReader(manifest("web", "Always", forever) + "---\n" + manifest("job", "Never", c.job))
			cmd.Stdout, cmd.Stderr = n.log, write
			if c.stdout {
				cmd.Stdout, cmd.Stderr = write, n.log
			}
			must(t, cmd.Start())
			must(t, write.Close())
			one := make([]byte, 1)
			_, err = read.Read(one)
			must(t, err)
			must(t, read.Close())
			_ = cmd.Wait() // the code is what counts
			if code := cmd.ProcessState.ExitCode(); code != c.want {
				t.Errorf("exit %d, want %d", code, c.want)
			}
			n.gone("job-n")
			n.gone("web-n")
		})
	}
}

// TestOnceCannotWrite: output that is lost is no success, and a report that nobody reads keeps nobody for ever.
func TestOnceCannotWrite(t *testing.T) {
	n := newNode(t)
	job := manifest("job", "Never", "echo x")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(t, err)
	defer full.Close()
	cmd := n.command(context.Background(), "once", "--manifests=-", "--node-name=n", "--logs=all", "--rm")
	var said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(job), full, &said
	_ = cmd.Run() // the code is what counts
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(said.String(), "no space left on device") {
		t.Errorf("exit %d, want 1: %s", code, said.String())
	}
	fifo := n.path("fifo")
	must(t, syscall.Mkfifo(fifo, 0o600))
	began := time.Now()
	r := n.once(job, "--rm", "--cleanup-timeout=2s", "--report="+fifo)
	if r.code != 1 || !strings.Contains(r.stderr, "nobody reads "+fifo) || time.Since(began) > patience/2 {
		t.Errorf("after %s: %v", time.Since(began), r)
	}
	n.gone("job-n")
}

// TestOnceTimeline: the file has what the run spent its time on, and the run of the job is on the critical path.
func TestOnceTimeline(t *testing.T) {
	n := newNode(t)
	for _, name := range []string{"run.json", "run.svg"} {
		file := n.path(name)
		if r := n.once(manifest("job", "Never", "sleep 1"), "--timeline="+file); r.code != 0 {
			t.Fatal(r)
		}
		text, err := os.ReadFile(file)
		must(t, err)
		if name == "run.svg" {
			if !strings.HasPrefix(string(text), "<svg ") || !strings.Contains(string(text), "default/job-n c run") {
				t.Errorf("not the drawing of the run:\n%s", text)
			}
			continue
		}
		var all struct {
			Items []struct {
				Kind       string
				Begin, End time.Time
				Critical   bool
			}
		}
		must(t, json.Unmarshal(text, &all))
		critical := map[string]time.Duration{}
		for _, s := range all.Items {
			if s.Critical {
				critical[s.Kind] = s.End.Sub(s.Begin)
			}
		}
		if critical["run"] < time.Second || critical["run"] > 10*time.Second ||
			critical["sandbox"] <= 0 || critical["start"] <= 0 {
			t.Errorf("critical: %v of\n%s", critical, text)
		}
	}
}
