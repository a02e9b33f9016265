package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const ofServer = `apiVersion: v1
kind: Pod
metadata: {name: a, uid: u-of-server}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: c, image: podrun.example/box:1, command: [sleep, 1d], volumeMounts: [{name: v, mountPath: /v}]}
  volumes:
  - {name: v, nfs: {server: %q, path: /fstab}}
`

// TestServerIsNoOption: what a manifest calls a server is not taken by mount as an option, here one that has it mount
// a directory of the machine's.
func TestServerIsNoOption(t *testing.T) {
	n := newNode(t)
	host := n.path("host")
	must(t, os.Mkdir(host, 0o700))
	must(t, os.WriteFile(host+"/secret", []byte("of the machine"), 0o600))
	at := n.path("root", "pods", "u-of-server", "volumes", "kubernetes.io~nfs", "v")
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	table := n.path("table:")
	must(t, os.Mkdir(table, 0o700))
	must(t, os.WriteFile(table+"/fstab", []byte(host+" "+at+" none bind\n"), 0o600))
	server := "--fstab=" + strings.TrimSuffix(table, ":")
	r := n.once(fmt.Sprintf(ofServer, server), "--pod-security=baseline", "--timeout=20s")
	if r.code != 2 || !strings.Contains(r.stderr, "spec.volumes[0].nfs.server") {
		t.Errorf("not refused: %v", r)
	}
	if got := n.run("exec", "a", "--", "cat", "/v/secret"); got.code == 0 {
		t.Errorf("a container reads %q", got.stdout)
	}
}

// TestDownSaysWhatKeepsAPod: what cannot be removed is said, and down ends.
func TestDownSaysWhatKeepsAPod(t *testing.T) {
	n := newNode(t)
	if r := n.once(manifest("a", "Always", forever)); r.code != 0 {
		t.Fatal(r)
	}
	at := n.path("root", "pods", string(n.pod("a-n").UID), "mine")
	must(t, os.Mkdir(at, 0o700))
	must(t, unix.Mount("tmpfs", at, "tmpfs", 0, ""))
	defer func() { _ = unix.Unmount(at, unix.MNT_DETACH) }()
	begun := time.Now()
	r := n.run("down", "--all", "--grace-period=0")
	if r.code != 1 || !strings.Contains(r.stderr, at+" is mounted") || time.Since(begun) > time.Minute {
		t.Errorf("after %v: %v", time.Since(begun), r)
	}
	must(t, unix.Unmount(at, 0))
	n.ok("down", "--all", "--grace-period=0")
}
