package e2e

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"
)

// runsOn returns the CPUs on which a process may run.
func runsOn(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	return regexp.MustCompile(`(?m)^Cpus_allowed_list:\s*(.*)$`).FindStringSubmatch(string(text))[1]
}

// TestStaticCPUs: a Guaranteed container with a whole number of CPUs has them for itself, all others share the rest at
// once, also those that ran before it, and over podrun's death; without the policy all CPUs are everybody's again.
func TestStaticCPUs(t *testing.T) {
	all, err := cpuset.Parse(runsOn(t, os.Getpid()))
	must(t, err)
	if all.Size() < 2 {
		t.Skip("needs two CPUs")
	}
	reserved := all.List()[0]
	rest := all.Difference(cpuset.New(reserved))
	n := newNode(t)
	must(t, os.WriteFile(n.path("node.yaml"), fmt.Appendf(nil, "cpuPolicy: static\nreservedCPUs: %d\n", reserved), 0o600))
	flag := "--node-config=" + n.path("node.yaml")
	n.write("shared.yaml", manifest("shared", "Always", forever))
	n.serve(flag)
	on := func(name, want string) {
		t.Helper()
		pid := n.mainPID(n.ready(name+"-n"), "c")
		n.await(fmt.Sprintf("%s on %s", name, want), func() error {
			if got := runsOn(t, pid); got != want {
				return fmt.Errorf("%s", got)
			}
			return nil
		})
	}
	on("shared", all.String())
	own := inContainer(manifest("own", "Always", forever), "resources: {limits: {cpu: 1, memory: 32Mi}}")
	n.write("own.yaml", own)
	pid := n.mainPID(n.ready("own-n"), "c")
	mine, err := cpuset.Parse(runsOn(t, pid))
	must(t, err)
	if mine.Size() != 1 || !mine.IsSubsetOf(rest) {
		t.Fatalf("one of %s: %s", rest, mine)
	}
	if got := cgroupFile(t, pid, "cpu", "cpu.cfs_quota_us", "cpu.max"); !strings.HasPrefix(got, "-1") && !strings.HasPrefix(got, "max") {
		t.Errorf("limited in time: %s", got)
	}
	others := all.Difference(mine).String()
	on("shared", others)
	// One that starts later, and one of half a CPU.
	n.write("late.yaml", manifest("late", "Always", forever))
	on("late", others)
	if all.Size() == 2 { // none is left
		n.write("more.yaml", inContainer(manifest("more", "Always", forever), "resources: {limits: {cpu: 1, memory: 32Mi}}"))
		n.awaitPod("more-n", "to wait for a CPU", func(p *v1.Pod) error {
			if p.Status.Reason == "OutOfcpu" && strings.Contains(p.Status.Message, "requested: 1000, used: 1000, capacity: 1000") {
				return nil
			}
			return errors.New(asJSON(p.Status))
		})
		n.remove("more.yaml")
	}
	// Killed and started again, everything stays where it is.
	n.end(syscall.SIGKILL)
	n.serve(flag)
	on("own", mine.String())
	on("shared", others)
	if again := n.mainPID(n.ready("own-n"), "c"); again != pid {
		t.Errorf("started again: %d was %d", again, pid)
	}
	// A change of the pod, whose CPU is free for it.
	n.write("own.yaml", strings.Replace(own, "limits: {cpu: 1", "requests: {cpu: 1}, limits: {cpu: 1", 1)+"    env: [{name: A, value: b}]\n")
	n.await("another process", func() error {
		if again := n.mainPID(n.ready("own-n"), "c"); again == pid {
			return fmt.Errorf("still %d", pid)
		}
		return nil
	})
	on("own", mine.String())
	// In place: half a CPU is not a CPU of its own.
	pid = n.mainPID(n.ready("own-n"), "c")
	n.write("own.yaml", strings.Replace(own, "cpu: 1", "cpu: 500m", 1)+"    env: [{name: A, value: b}]\n")
	n.await("all CPUs to be shared", func() error {
		if got := runsOn(t, pid); got != all.String() {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
	on("shared", all.String())
	n.write("own.yaml", own+"    env: [{name: A, value: b}]\n")
	on("own", mine.String())
	on("shared", others)
	if again := n.mainPID(n.ready("own-n"), "c"); again != pid {
		t.Errorf("started again: %d was %d", again, pid)
	}
	// Without the pod, and then without the policy.
	n.remove("own.yaml")
	on("shared", all.String())
	n.write("own.yaml", own)
	on("shared", others)
	n.end(syscall.SIGKILL)
	n.serve()
	on("shared", all.String())
	on("own", all.String())
}
