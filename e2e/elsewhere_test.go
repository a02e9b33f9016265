package e2e

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestDownWithAnotherRoot: a down that names the run directory of pods and another root directory, in which nothing is
// known of them, or another namespace, is refused, and leaves them and their network as they are.
func TestDownWithAnotherRoot(t *testing.T) {
	n := newNode(t)
	n.write("a.yaml", manifest("a", "Always", forever))
	n.serve()
	n.ready("a-n")
	n.end(syscall.SIGTERM)
	network := func() string {
		out, err := exec.Command("sh", "-c", "find '"+n.path("run", "network")+"' -type f | sort; cat '"+n.path("run", "place")+"'").Output()
		must(t, err)
		return string(out) + strings.Join(n.links(), " ")
	}
	before := network()
	for _, flag := range []string{"--root-dir=" + n.path("wrong"), "--containerd-namespace=wrong"} {
		r := n.run("down", flag, "--all")
		if r.code != 1 || !strings.Contains(r.stderr, "the pods of "+n.path("run")+" are in namespace") {
			t.Errorf("%s: %s", flag, r)
		}
		if after := network(); after != before {
			t.Errorf("%s: %s\nbefore: %s", flag, after, before)
		}
	}
	n.says("a", "echo alive", "alive")
	if n.ok("down", "--all"); strings.Contains(n.ok("get", "pods", "-A"), "a-n") {
		t.Error("it is not removed")
	}
}
