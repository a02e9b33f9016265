package e2e

import (
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestDownWithAnotherRoot: a down with the root directory of a serve and another run directory, or that names the run
// directory of pods and another root directory, in which nothing is known of them, or another namespace, is refused, and leaves them and their network as they are.
func TestDownWithAnotherRoot(t *testing.T) {
	n := newNode(t)
	n.write("a.yaml", manifest("a", "Always", forever))
	n.serve()
	n.ready("a-n")
	r := n.run("down", "--run-dir="+n.path("wrong-run"), "--all")
	if r.code != 1 || !strings.Contains(r.stderr, "is in use with the run directory "+n.path("run")) {
		t.Errorf("with another run directory: %s", r)
	}
	n.says("a", "echo alive", "alive")
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

// TestTwoRootsInOneNamespace: two podruns with directories of their own use the same namespace of a containerd, as jobs
// of a CI machine with Docker do, and have the same pod. Neither ends or removes what is the other's.
func TestTwoRootsInOneNamespace(t *testing.T) {
	n := newNode(t)
	other := []string{"--root-dir=" + n.path("root2"), "--run-dir=" + n.path("run2"), "--log-dir=" + n.path("log2")}
	n.write("a.yaml", withGrace(manifest("a", "Always", forever), 1))
	n.serve()
	n.ready("a-n")
	const id = "{.metadata.uid} {.status.containerStatuses[*].containerID}"
	before := n.ok("get", "pod", "a", "-o", "jsonpath="+id)
	for _, args := range [][]string{
		{"images", "load", setup.image}, {"once", n.path("manifests", "a.yaml"), "--node-name=n"}, {"get", "pods"}, {"down", "--all"}, {"down", "--all"},
	} {
		if r := n.run(slices.Insert(args, 1, other...)...); r.code != 0 {
			t.Errorf("%q: %s", args, r)
		}
		if after := n.ok("get", "pod", "a", "-o", "jsonpath="+id); after != before {
			t.Errorf("%q: %s, was %s", args, after, before)
		}
		n.says("a", "echo alive", "alive")
	}
	n.end(syscall.SIGTERM)
	if r := n.run(append([]string{"once", n.path("manifests", "a.yaml"), "--node-name=n"}, other...)...); r.code != 0 {
		t.Error(r)
	}
	n.ok("down", "--all")
	if r := n.run(slices.Insert([]string{"exec", "a", "--", "echo", "alive"}, 1, other...)...); r.stdout != "alive\n" {
		t.Errorf("the other pod after the removal of the first: %s", r)
	}
	if r := n.run(append([]string{"down", "--all"}, other...)...); r.code != 0 {
		t.Error(r)
	}
}
