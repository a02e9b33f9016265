package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// A pod with hostUsers: false: root in it is nobody on the machine, and owns its files all the same.
func TestOwnUsers(t *testing.T) {
	n := newNode(t)
	must(t, os.Chmod(n.dir, 0o711)) // as /run and /var/lib are
	must(t, os.Mkdir(n.path("data"), 0o755))
	must(t, os.WriteFile(n.path("data", "theirs"), []byte("root's\n"), 0o600))
	must(t, os.Chown(n.path("data", "theirs"), 0, 0))
	mounts := "securityContext: {procMount: Unmasked}\n    volumeMounts: [{name: e, mountPath: /e}, {name: s, mountPath: /s}, {name: h, mountPath: /h}, {name: e, mountPath: /part, subPath: part}]"
	own := func(name string) string {
		return inContainer(manifest(name, "Always", `echo started >/dev/stdout; `+forever, "hostUsers: false",
			"securityContext: {fsGroup: 2000, sysctls: [{name: kernel.shm_rmid_forced, value: '1'}, {name: net.ipv4.ip_local_port_range, value: 20000 30000}]}",
			fmt.Sprintf("volumes: [{name: e, emptyDir: {}}, {name: s, secret: {secretName: login, defaultMode: 256}}, {name: h, hostPath: {path: %s}}]", n.path("data"))), mounts)
	}
	if os.Getenv("PODRUN_E2E_CONTAINERD") == "debian" { // it is too old
		n.refused(fmt.Sprintf(password, "word")+"---\n"+own("a"), []string{"hostUsers: false: containerd's snapshotter"})
		return
	}
	n.write("s.yaml", fmt.Sprintf(password, "word"))
	n.write("a.yaml", own("a"))
	n.write("b.yaml", own("b"))
	n.serve()
	a, b := n.ready("a-n"), n.ready("b-n")
	first := n.users(a)
	if other := n.users(b); first < 0x77390000 || other < 0x77390000 || first == other {
		t.Errorf("the users of the pods begin at %d and %d", first, other)
	}
	pid := n.mainPID(a, "c")
	if got, want := processStatus(t, pid, "Uid"), fmt.Sprintf("%[1]d %[1]d %[1]d %[1]d", first); got != want {
		t.Errorf("on the machine it is user %s, want %s", got, want)
	}
	if got := processStatus(t, pid, "Groups"); !strings.Contains(got, strconv.Itoa(first+2000)) {
		t.Errorf("on the machine its groups are %s, without %d", got, first+2000)
	}
	n.says("a", "cat /proc/self/uid_map | tr -s ' '", fmt.Sprintf(" 0 %d 65536", first))
	n.says("a", "stat -L -c %u:%g /bin/busybox /proc/1 /etc/hosts /e /s/password", "0:0\n0:0\n0:0\n0:2000\n0:2000")
	n.says("a", "cat /h/theirs; echo mine >/h/mine; echo new >/e/new; chown 1234 /e/new; echo part >/part/p; cat /e/part/p; touch /bin/x && stat -c %u /bin/x", "root's\npart\n0")
	// All of /proc is there, and the machine's part of it is not theirs.
	n.says("a", "[ -r /proc/timer_list ] && echo 1 >/proc/sys/vm/swappiness || grep -c ' /proc/' /proc/self/mounts || true", "0")
	for path, owner := range map[string]uint32{n.path("data", "mine"): 0, n.path("root", "pods", string(a.UID), "volumes", "kubernetes.io~empty-dir", "e", "new"): 1234} {
		var st unix.Stat_t
		must(t, unix.Stat(path, &st))
		if st.Uid != owner {
			t.Errorf("%s is user %d's, want %d", path, st.Uid, owner)
		}
	}
	n.says("a", "cat /proc/sys/kernel/shm_rmid_forced /proc/sys/net/ipv4/ip_local_port_range | tr '\\t' ' '", "1\n20000 30000")
	// It reaches others.
	n.says("a", "ping -c1 -W5 "+b.Status.PodIP+" >/dev/null && echo yes", "yes")
	if got := n.ok("logs", "a"); got != "started\n" {
		t.Errorf("its log: %q", got)
	}
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	n.restarted("a-n", 1)
	n.ready("a-n")
	n.says("a", "cat /e/new /h/mine; stat -c %u /e/new", "new\nmine\n1234")
	n.end(syscall.SIGKILL)
	n.serve()
	if now := n.users(n.ready("a-n")); now != first {
		t.Errorf("its users begin at %d, and did at %d", now, first)
	}
	n.write("c.yaml", strings.Replace(own("c"), "fsGroup: 2000", "runAsUser: 70000", 1))
	n.waits("c-n", "CreateContainerConfigError", "user or group 70000 is not among the pod's own")
	n.end(syscall.SIGTERM)
	n.ok("down", "--all")
	left, err := filepath.Glob(n.path("root", "pods", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// users is the machine's user that is root in the pod's container.
func (n *node) users(p *v1.Pod) int {
	n.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", n.mainPID(p, "c")))
	must(n.t, err)
	fields := strings.Fields(string(text))
	if len(fields) != 3 {
		n.t.Fatalf("uid_map: %q", text)
	}
	first, err := strconv.Atoi(fields[1])
	must(n.t, err)
	return first
}
