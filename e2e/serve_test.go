package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestServeFollowsItsManifests(t *testing.T) {
	n := newNode(t)
	n.write("a.yaml", manifest("a", "Always", forever))
	n.serve()
	a := n.ready("a-n")
	pid := n.mainPID(a, "c")

	// Added, two in one file.
	n.write("b.yaml", manifest("b", "Always", forever)+"---\n"+manifest("c", "Always", forever))
	n.ready("b-n")
	n.ready("c-n")

	// Touched, reformatted, renamed: nothing restarts.
	must(t, os.Chtimes(filepath.Join(n.manifests, "a.yaml"), time.Now(), time.Now()))
	n.write("a.yaml", "# a comment\n"+manifest("a", "Always", forever))
	must(t, os.Rename(filepath.Join(n.manifests, "a.yaml"), filepath.Join(n.manifests, "renamed.yaml")))

	// One of two documents goes, and with it its pod.
	n.write("b.yaml", manifest("b", "Always", forever))
	n.gone("c-n")

	if again := n.ready("a-n"); again.UID != a.UID || n.mainPID(again, "c") != pid {
		t.Errorf("a was restarted: %s -> %s", a.UID, again.UID)
	}

	// Edited: a new revision replaces it.
	n.write("renamed.yaml", inContainer(manifest("a", "Always", forever), "env: [{name: A, value: b}]"))
	n.awaitPod("a-n", "to be replaced", func(p *v1.Pod) error {
		if p.UID == a.UID {
			return errors.New("same UID")
		}
		return isReady(p)
	})
	if got := n.ok("exec", "a", "--", "sh", "-c", "echo $A"); got != "b\n" {
		t.Errorf("the new revision's environment has A=%q", got)
	}

	// Other names are left alone.
	n.write("web.yaml.bak", manifest("bak", "Always", forever))
	n.remove("renamed.yaml")
	n.gone("a-n")
	n.ready("b-n")
	if p := n.pod("bak-n"); p != nil {
		t.Error("web.yaml.bak was read")
	}
}

func TestBadManifestKeepsThePod(t *testing.T) {
	n := newNode(t)
	good := manifest("a", "Always", forever)
	n.write("a.yaml", good)
	n.write("b.yaml", manifest("b", "Always", forever))
	n.serve()
	pid := n.mainPID(n.ready("a-n"), "c")
	n.ready("b-n")
	n.write("a.yaml", strings.Replace(good, "restartPolicy", "restartpolicy", 1))
	n.await("serve to name the file, line and field", func() error {
		said, err := os.ReadFile(n.log.Name())
		if err == nil && (!strings.Contains(string(said), "a.yaml:") || !strings.Contains(string(said), "restartpolicy")) {
			err = errors.New(string(said))
		}
		return err
	})
	// The rest goes on.
	n.remove("b.yaml")
	n.gone("b-n")
	// A restart of podrun changes nothing: the last good one stays.
	n.end(syscall.SIGKILL)
	n.serve()
	n.write("c.yaml", manifest("c", "Always", forever))
	n.ready("c-n")
	if again := n.mainPID(n.ready("a-n"), "c"); again != pid {
		t.Errorf("process %d became %d", pid, again)
	}
	// The whole directory vanishes: nothing stops.
	must(t, os.Rename(n.manifests, n.manifests+".away"))
	n.end(syscall.SIGTERM)
	n.serve()
	n.await("serve to say that the directory is not there", func() error {
		said, err := os.ReadFile(n.log.Name())
		if err == nil && !strings.Contains(string(said), "no such file") {
			err = errors.New(string(said))
		}
		return err
	})
	if again := n.mainPID(n.ready("a-n"), "c"); again != pid {
		t.Errorf("process %d became %d", pid, again)
	}
	// What nobody can tell to be unwanted is kept alive, too.
	n.kill(n.wrong("a-n", "no such file"), "c")
	n.restarted("a-n", 1)
	must(t, os.Rename(n.manifests+".away", n.manifests))
	n.wrong("a-n", "a.yaml:6: spec.restartpolicy")
	n.remove("a.yaml")
	n.gone("a-n")
}

func TestKilledProcessComesBack(t *testing.T) {
	n := newNode(t)
	n.write("a.yaml", manifest("a", "Always", "echo began; touch /mark 2>/dev/null; "+forever))
	n.serve()
	p := n.ready("a-n")
	pid := n.mainPID(p, "c")
	n.kill(p, "c")
	again := n.restarted("a-n", 1)
	if n.mainPID(again, "c") == pid {
		t.Error("the same process")
	}
	s := again.Status.ContainerStatuses[0]
	if last := s.LastTerminationState.Terminated; last == nil || last.ExitCode != 137 || last.Reason != "Error" {
		t.Errorf("last state: %s", asJSON(s.LastTerminationState))
	}
	if s.ContainerID == p.Status.ContainerStatuses[0].ContainerID || again.Status.PodIP != p.Status.PodIP || again.UID != p.UID {
		t.Errorf("before: %s\nafter: %s", asJSON(p.Status), asJSON(again.Status))
	}
	n.await("the log of the run before", func() error {
		if got := n.ok("logs", "--previous", "a"); got != "began\n" {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
}

func TestFreshRootFilesystem(t *testing.T) {
	n := newNode(t)
	n.write("a.yaml", manifest("a", "Always", `[ -e /mark ] && echo stale || echo fresh; : >/mark; `+forever))
	n.serve()
	n.kill(n.ready("a-n"), "c")
	n.restarted("a-n", 1)
	n.await("the log", func() error {
		if got := n.ok("logs", "a"); got != "fresh\n" {
			return fmt.Errorf("log: %q", got)
		}
		return nil
	})
}

func TestCrashLoop(t *testing.T) {
	n := newNode(t)
	n.write("a.yaml", manifest("a", "Always", "date +%s; exit 5"))
	n.serve()
	// inBackOff waits for the restart count and the pause that come with it.
	inBackOff := func(count int32, pause string) *v1.Pod {
		return n.awaitPod("a-n", "to wait "+pause, func(p *v1.Pod) error {
			s := p.Status.ContainerStatuses[0]
			want := fmt.Sprintf("back-off %s restarting failed container=c pod=a-n_default(%s)", pause, p.UID)
			if w := s.State.Waiting; w == nil || w.Reason != "CrashLoopBackOff" || w.Message != want || s.RestartCount != count {
				return errors.New(asJSON(s))
			}
			return nil
		})
	}
	p := inBackOff(1, "10s")
	first := p.Status.ContainerStatuses[0].LastTerminationState.Terminated
	if p.Status.Phase != v1.PodRunning || first.ExitCode != 5 {
		t.Errorf("in back-off: %s", asJSON(p.Status))
	}
	// The back-off outlives podrun.
	n.end(syscall.SIGKILL)
	n.serve()
	second := inBackOff(2, "20s").Status.ContainerStatuses[0].LastTerminationState.Terminated
	// The status has whole seconds.
	if pause := second.StartedAt.Sub(first.FinishedAt.Time); pause < 9*time.Second || pause > 20*time.Second {
		t.Errorf("tried again after %v, want about 10s", pause)
	}
}

func TestStopIsGraceful(t *testing.T) {
	n := newNode(t)
	data := n.path("data")
	must(t, os.Mkdir(data, 0o777))
	volume := "volumes: [{name: data, hostPath: {path: " + data + "}}]"
	mount := "volumeMounts: [{name: data, mountPath: /data}]"
	polite := `trap "echo bye >/data/polite; exit 0" TERM; echo >/data/up1; while :; do sleep 1000 & wait; done`
	deaf := `trap "echo heard >/data/deaf" TERM; echo >/data/up2; while :; do sleep 1000 & wait; done`
	n.write("a.yaml", withGrace(inContainer(manifest("polite", "Always", polite, volume), mount), 30))
	n.write("b.yaml", withGrace(inContainer(manifest("deaf", "Always", deaf, volume), mount), 2))
	n.serve()
	n.ready("polite-n")
	n.ready("deaf-n")
	n.await("both traps", func() error {
		_, one := os.Stat(filepath.Join(data, "up1"))
		_, two := os.Stat(filepath.Join(data, "up2"))
		return errors.Join(one, two)
	})
	began := time.Now()
	n.remove("b.yaml")
	n.gone("deaf-n")
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("the deaf one was gone after %v, before its grace period", took)
	}
	n.end(syscall.SIGTERM)
	n.awaitPod("polite-n", "to be nobody's", isUnowned)
	n.ok("exec", "polite", "--", "true") // podrun's end is not the pods'
	n.ok("down", "polite")
	for file, want := range map[string]string{"polite": "bye\n", "deaf": "heard\n"} {
		if got, _ := os.ReadFile(filepath.Join(data, file)); string(got) != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
}

// TestDownBesideServe: what serve has stays, and is named; with --all, what nobody has goes all the same.
func TestDownBesideServe(t *testing.T) {
	n := newNode(t)
	if r := n.once(manifest("left", "Always", forever)); r.code != 0 {
		t.Fatal(r)
	}
	n.write("a.yaml", manifest("a", "Always", forever))
	n.serve()
	n.ready("a-n")
	if r := n.run("down", "a", "left"); r.code != 1 || !strings.Contains(r.stderr, "pod default/a-n is run by podrun serve") || strings.Contains(r.stdout, "removed") {
		t.Error(r)
	}
	r := n.run("down", "--all")
	if r.code != 1 || !strings.Contains(r.stderr, "pod default/a-n is run by podrun serve") || !strings.Contains(r.stdout, `"left-n" removed`) {
		t.Error(r)
	}
	n.gone("left-n")
	if err := isReady(n.pod("a-n")); err != nil {
		t.Error(err)
	}
	if r := n.run("events", "left"); !strings.Contains(r.stdout, "Killing") {
		t.Errorf("its end is no event: %v", r)
	}
}

func TestServeStopPods(t *testing.T) {
	n := newNode(t)
	n.write("a.yaml", manifest("a", "Always", forever))
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: n.path("notify")})
	must(t, err)
	defer manager.Close()
	n.serveWith([]string{"NOTIFY_SOCKET=" + n.path("notify")}, "--stop-pods")
	n.ready("a-n")
	n.end(syscall.SIGTERM)
	n.gone("a-n")
	// The service manager waits as long as the pods may take.
	must(t, manager.SetReadDeadline(time.Now().Add(time.Second)))
	said, text := "", make([]byte, 4096)
	for {
		length, err := manager.Read(text)
		if err != nil {
			break
		}
		said += string(text[:length]) + "\n"
	}
	if got := regexp.MustCompile(`EXTEND_TIMEOUT_USEC=\d{9}\n`).FindString(said); got == "" {
		t.Errorf("the service manager heard %q", said)
	}
}
