package e2e

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// whole checks that a log of counting has every line once, and returns how many.
func whole(log string) (int, error) {
	lines := strings.Split(strings.TrimSuffix(log, "\n"), "\n")
	for i, line := range lines {
		if line != fmt.Sprintf("line %d", i) {
			return 0, fmt.Errorf("line %d is %q", i, line)
		}
	}
	return len(lines), nil
}

func TestKilledPodrunIsNotMissed(t *testing.T) {
	n := newNode(t)
	for _, name := range []string{"stays", "goes", "dies"} {
		n.write(name+".yaml", manifest(name, "Always", counting))
	}
	n.serve()
	stays, dies := n.ready("stays-n"), n.ready("dies-n")
	goes := n.mainPID(n.ready("goes-n"), "c")
	pid := n.mainPID(stays, "c")
	var before int
	for _, name := range []string{"dies", "stays"} {
		n.await(name+" to have begun to count", func() (err error) {
			before, err = whole(n.ok("logs", name))
			return err
		})
	}

	n.end(syscall.SIGKILL)
	n.remove("goes.yaml")
	n.kill(dies, "c")
	// What is written while nobody is there.
	time.Sleep(time.Second)

	n.serve()
	n.gone("goes-n")
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", goes)); err == nil {
		t.Errorf("process %d of a pod that is not wanted any more still runs", goes)
	}
	if p := n.restarted("dies-n", 1); p.Status.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode != 137 {
		t.Errorf("exit code of who died meanwhile: %s", asJSON(p.Status.ContainerStatuses))
	}
	p := n.ready("stays-n")
	if again := n.mainPID(p, "c"); again != pid || p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("process %d became %d: %s", pid, again, asJSON(p.Status.ContainerStatuses))
	}
	n.await("the log to be whole", func() error {
		after, err := whole(n.ok("logs", "stays"))
		if err == nil && after < before+50 {
			err = fmt.Errorf("%d lines, before %d", after, before)
		}
		return err
	})
	if _, err := whole(n.ok("logs", "--previous", "dies")); err != nil {
		t.Errorf("the log of who died meanwhile: %v", err)
	}
}

func TestKilledContainerdIsNotMissed(t *testing.T) {
	n := newNode(t)
	if setup.address != "embedded" {
		t.Skip("this containerd is shared with other cases")
	}
	n.write("a.yaml", manifest("a", "Always", counting))
	n.serve()
	p := n.ready("a-n")
	pid := n.mainPID(p, "c")
	daemon := n.daemon()
	must(t, syscall.Kill(daemon, syscall.SIGKILL))
	n.write("b.yaml", manifest("b", "Always", forever))
	n.ready("b-n")
	if again := n.mainPID(n.ready("a-n"), "c"); again != pid {
		t.Errorf("process %d became %d", pid, again)
	}
	if again := n.daemon(); again == daemon {
		t.Error("the same daemon")
	}
	n.kill(n.pod("a-n"), "c")
	n.restarted("a-n", 1)
}

// A pod whose shim answers nothing keeps no other from being looked after, without events and after podrun's death
// either, and goes on where it was when the shim does.
func TestAShimThatHangs(t *testing.T) {
	n := newNode(t)
	for _, name := range []string{"hangs", "dies"} {
		n.write(name+".yaml", manifest(name, "Always", forever))
	}
	n.serve("--events=off")
	hangs := n.ready("hangs-n")
	n.ready("dies-n")
	pid := n.mainPID(hangs, "c")
	shim, err := strconv.Atoi(processStatus(t, pid, "PPid"))
	must(t, err)
	must(t, syscall.Kill(shim, syscall.SIGSTOP))
	defer syscall.Kill(shim, syscall.SIGCONT) // else nothing could be cleared away
	n.kill(n.pod("dies-n"), "c")
	n.restarted("dies-n", 1)
	n.end(syscall.SIGKILL)
	n.remove("dies.yaml")
	n.serve("--events=off")
	n.gone("dies-n")
	must(t, syscall.Kill(shim, syscall.SIGCONT))
	if again := n.mainPID(n.ready("hangs-n"), "c"); again != pid {
		t.Errorf("process %d became %d", pid, again)
	}
	n.kill(n.pod("hangs-n"), "c")
	n.restarted("hangs-n", 1)
}

// daemon is the process of the node's embedded containerd.
func (n *node) daemon() int {
	n.t.Helper()
	for _, pid := range n.processes() {
		if fields := strings.Fields(cmdline(pid)); len(fields) > 1 && fields[1] == "containerd" {
			return pid
		}
	}
	n.t.Fatal("no embedded containerd runs")
	return 0
}

// TestKillAnywhere kills podrun at random moments while manifests come, change and go; in the end exactly
// what is wanted runs.
func TestKillAnywhere(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("PODRUN_E2E_SEED"); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatal(err)
		}
	}
	n := newNode(t)
	t.Logf("PODRUN_E2E_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	want := map[string]string{} // name to the value of its environment
	n.serve()
	for step := range 25 {
		name := fmt.Sprintf("p%d", random.IntN(5))
		if random.IntN(3) == 0 && want[name] != "" {
			n.remove(name + ".yaml")
			delete(want, name)
		} else {
			want[name] = fmt.Sprint("v", step)
			n.write(name+".yaml", inContainer(manifest(name, "Always", forever), "env: [{name: V, value: "+want[name]+"}]"))
		}
		time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
		if random.IntN(2) == 0 {
			n.end(syscall.SIGKILL)
			n.serve()
		}
	}
	n.await("exactly what is wanted", func() error {
		pods := n.pods()
		var wrong []error
		for name, value := range want {
			p, ok := pods[name+"-n"]
			if !ok {
				return fmt.Errorf("no %s", name)
			}
			if got := p.Spec.Containers[0].Env; len(got) != 1 || got[0].Value != value {
				wrong = append(wrong, fmt.Errorf("%s: environment %s, want %s", name, asJSON(got), value))
			}
			wrong = append(wrong, isReady(&p))
		}
		if len(pods) != len(want) {
			wrong = append(wrong, fmt.Errorf("%d pods, want %v", len(pods), slices.Sorted(maps.Keys(want))))
		}
		return errors.Join(wrong...)
	})
	for name, value := range want {
		if got := n.ok("exec", name, "--", "sh", "-c", "echo $V"); got != value+"\n" {
			t.Errorf("%s: exec says %q, want %q", name, got, value)
		}
	}
	n.await("one container for each", func() error {
		running := 0
		for _, pid := range n.processes() {
			for _, child := range children(pid) {
				if strings.Contains(cmdline(pid), "containerd-shim") && strings.HasPrefix(cmdline(child), "sh -c ") {
					running++
				}
			}
		}
		if running != len(want) {
			return fmt.Errorf("%d run, want %d", running, len(want))
		}
		return nil
	})
}
