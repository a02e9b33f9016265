package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestHostNamespaces(t *testing.T) {
	n := newNode(t)
	m := manifest("a", "Always", "sleep 4321", "hostPID: true", "hostIPC: true")
	if r := n.once(m); r.code != 0 {
		t.Fatal(r)
	}
	for _, ns := range []string{"pid", "ipc"} {
		own, err := os.Readlink("/proc/self/ns/" + ns)
		must(t, err)
		if got := n.ok("exec", "a", "--", "readlink", "/proc/self/ns/"+ns); strings.TrimSpace(got) != own {
			t.Errorf("%s: %s, want %s", ns, got, own)
		}
	}
	if got := n.ok("exec", "a", "--", "ps", "-o", "pid,args"); !strings.Contains(got, fmt.Sprintf("%6d ", os.Getpid())) && !strings.Contains(got, fmt.Sprintf("%d ", os.Getpid())) {
		t.Errorf("the test's own process is not seen:\n%s", got)
	}
	shm := "/dev/shm/" + filepath.Base(n.dir)
	n.ok("exec", "a", "--", "sh", "-c", "echo hello >"+shm)
	if got, err := os.ReadFile(shm); err != nil || string(got) != "hello\n" {
		t.Errorf("the host's shared memory: %q, %v", got, err)
	}
	must(t, os.Remove(shm))
	n.ok("down", "a")
}

func TestSysctls(t *testing.T) {
	n := newNode(t)
	before, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	must(t, err)
	n.mainProcess(manifest("a", "Always", forever, "securityContext: {runAsUser: 1000, sysctls: [{name: net.ipv4.ip_local_port_range, value: 20000 30000}]}"), "a")
	if got := n.ok("exec", "a", "--", "cat", "/proc/sys/net/ipv4/ip_local_port_range"); got != "20000\t30000\n" {
		t.Errorf("inside: %q", got)
	}
	if after, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err != nil || string(after) != string(before) {
		t.Errorf("the machine's changed from %q to %q, %v", before, after, err)
	}
	// A low port without any right.
	if r := n.run("exec", "a", "--", "sh", "-c", "nc -l -p 80 & sleep 0.2; kill $!"); strings.Contains(r.stderr, "ermission") {
		t.Errorf("port 80: %v", r)
	}
	unsafe := manifest("b", "Always", forever, "securityContext: {sysctls: [{name: net.core.somaxconn, value: '77'}]}")
	n.refused(unsafe, []string{"SysctlForbidden"})
	if r := n.once(unsafe, "--allowed-unsafe-sysctls=net.core.*"); r.code != 0 {
		t.Errorf("an unsafe one that is allowed: %v", r)
	}
	if got := n.ok("exec", "b", "--", "cat", "/proc/sys/net/core/somaxconn"); got != "77\n" {
		t.Errorf("inside: %q", got)
	}
	if r := n.once(unsafe, "--allowed-unsafe-sysctls=vm.*"); r.code != 2 || !strings.Contains(r.stderr, "the whole machine") {
		t.Errorf("one that is no pod's: %v", r)
	}
}

func TestShareProcessNamespace(t *testing.T) {
	n := newNode(t)
	m := manifest("a", "Always", forever, "shareProcessNamespace: true") +
		fmt.Sprintf("  - name: d\n    image: %s\n    command: [sh, -c, %s]\n", box, asJSON("exec sleep 2345"))
	n.write("a.yaml", m)
	n.serve()
	p := n.ready("a-n")
	n.await("both containers' processes", func() error { // ready is not yet exec'ed
		if got := n.ok("exec", "a", "-c", "c", "--", "ps", "-o", "pid,args"); !strings.Contains(got, "    1 /pause") || !strings.Contains(got, " sleep 2345") {
			return errors.New(got)
		}
		return nil
	})
	// One container sees the other's files, but none sees the host's through the first process.
	n.ok("exec", "a", "-c", "c", "--", "sh", "-c", "for p in /proc/[0-9]*; do grep -qa '^sleep.2345' $p/cmdline && exec ls $p/root/bin/busybox; done; exit 1")
	if r := n.run("exec", "a", "-c", "c", "--", "sh", "-c", "ls -d /proc/1/root/* /proc/1/root/../*"); strings.Contains(r.stdout, "etc") {
		t.Errorf("the first process's files: %v", r)
	}
	// podrun's death leaves it all; the first process's death restarts all.
	n.end(syscall.SIGKILL)
	n.serve()
	if q := n.ready("a-n"); q.Status.ContainerStatuses[0].ContainerID != p.Status.ContainerStatuses[0].ContainerID {
		t.Error("it was not taken over")
	}
	killed := false
	for _, pid := range pids() {
		groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if strings.Contains(string(groups), "pod"+string(p.UID)) && inGroup(string(groups), pauseGroup) {
			if size := processStatus(t, pid, "VmRSS"); len(size) > len("999 kB") {
				t.Errorf("it takes %s", size)
			}
			must(t, syscall.Kill(pid, syscall.SIGKILL))
			killed = true
		}
	}
	if !killed {
		t.Fatal("no first process")
	}
	n.restarted("a-n", 1)
	n.ready("a-n")
	n.remove("a.yaml")
	n.gone("a-n")
}

func TestRuntimeClass(t *testing.T) {
	n := newNode(t)
	runc, err := exec.LookPath("runc")
	must(t, err)
	// A runtime that says that it ran.
	script := fmt.Sprintf("#!/bin/sh\necho \"$@\" >>%s\nexec %s \"$@\"\n", n.path("ran"), runc)
	must(t, os.WriteFile(n.path("other"), []byte(script), 0o755))
	must(t, os.WriteFile(n.path("node.yaml"), fmt.Appendf(nil, "runtimeClasses: {other: {binaryName: %s}}\n", n.path("other")), 0o644))
	two := fmt.Sprintf("  - name: d\n    image: %s\n    command: [sh, -c, %s]\n", box, asJSON(forever))
	n.mainProcess(manifest("a", "Always", forever)+two, "a", "--node-config="+n.path("node.yaml"))
	if _, err := os.Stat(n.path("ran")); err == nil {
		t.Error("a pod without a class has the other runtime")
	}
	p, _ := n.mainProcess(manifest("b", "Always", forever, "runtimeClassName: other")+two, "b", "--node-config="+n.path("node.yaml"))
	ran, err := os.ReadFile(n.path("ran"))
	must(t, err)
	for _, s := range p.Status.ContainerStatuses {
		_, id, _ := strings.Cut(s.ContainerID, "://")
		if !strings.Contains(string(ran), "create") || !strings.Contains(string(ran), id) {
			t.Errorf("%s was not made by it:\n%s", s.Name, ran)
		}
	}
	n.ok("exec", "b", "-c", "d", "--", "true")
	n.refused(manifest("c", "Always", forever, "runtimeClassName: nosuch"), []string{`nosuch`, "is not in this node's --node-config"}, "--node-config="+n.path("node.yaml"))
	if r := n.once(manifest("c", "Never", "true"), "--node-config="+n.path("none.yaml")); r.code != 2 {
		t.Errorf("a file that is not there: %v", r)
	}
}

// Containers that share a shim have each what its own start needs, and nothing of the other's; so have further processes.
func TestSecretsOfTwoContainers(t *testing.T) {
	n := newNode(t)
	const line = "echo $FIRST-$SECOND"
	env := func(name string) string {
		return fmt.Sprintf("    env: [{name: %[1]s, valueFrom: {secretKeyRef: {name: s, key: %[1]s}}}]\n", name)
	}
	m := "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {FIRST: xyzzy, SECOND: plugh}\n---\n" +
		manifest("a", "Always", line+"; "+forever) + env("FIRST") +
		fmt.Sprintf("  - name: d\n    image: %s\n    command: [sh, -c, %s]\n", box, asJSON(line+"; "+forever)) + env("SECOND")
	if r := n.once(m); r.code != 0 {
		t.Fatal(r)
	}
	for c, want := range map[string]string{"c": "xyzzy-\n", "d": "-plugh\n"} {
		if got := n.ok("exec", "a", "-c", c, "--", "sh", "-c", line); got != want {
			t.Errorf("a further process of %s has %q, want %q", c, got, want)
		}
		n.await(fmt.Sprintf("%s to have %q", c, want), func() error {
			if got := n.ok("logs", "a", "-c", c); got != want {
				return fmt.Errorf("%q", got)
			}
			return nil
		})
	}
}

// A class's binary gets Secrets as runc does; a runtime that would have them kept on disk gets none.
func TestSecretsOfRuntimeClasses(t *testing.T) {
	n := newNode(t)
	runc, err := exec.LookPath("runc")
	must(t, err)
	const word = "cLass-w0rd-57721"
	script := fmt.Sprintf("#!/bin/sh\necho \"$@\" >>%s\nexec %s \"$@\"\n", n.path("ran"), runc)
	must(t, os.WriteFile(n.path("other"), []byte(script), 0o755))
	classes := fmt.Sprintf("runtimeClasses: {other: {binaryName: %s}, strange: {runtime: io.containerd.strange.v1}}\n", n.path("other"))
	must(t, os.WriteFile(n.path("node.yaml"), []byte(classes), 0o644))
	n.write("s.yaml", fmt.Sprintf(password, word))
	for name, class := range map[string]string{"a": "other", "b": "strange"} {
		n.write(name+".yaml", inContainer(manifest(name, "Always", `echo "$WORD" >/dev/shm/word; `+forever, "runtimeClassName: "+class),
			"env: [{name: WORD, valueFrom: {secretKeyRef: {name: login, key: password}}}]"))
	}
	n.serve("--node-config=" + n.path("node.yaml"))
	p := n.ready("a-n")
	n.says("a", "cat /dev/shm/word; echo $WORD", word+"\n"+word)
	must(t, syscall.Kill(n.mainPID(p, "c"), syscall.SIGKILL))
	n.restarted("a-n", 1)
	n.says("a", "echo $WORD", word)
	for _, command := range []string{"create", "exec", "delete"} {
		n.await("the class's binary to be run for "+command, func() error { // what has ended is deleted beside what runs
			ran, err := os.ReadFile(n.path("ran"))
			if err == nil && !strings.Contains(string(ran), command) {
				err = errors.New(string(ran))
			}
			return err
		})
	}
	n.waits("b-n", "CreateContainerConfigError", "the runtime io.containerd.strange.v1 would have the Secret's value of the variable WORD kept on disk")
	// What cannot be started is not named when it is a Secret.
	n.write("c.yaml", inContainer(strings.Replace(manifest("c", "Always", forever), "command: [", "command: [$(WORD), ", 1),
		"env: [{name: WORD, valueFrom: {secretKeyRef: {name: login, key: password}}}]"))
	n.awaitPod("c-n", "not to start", func(p *v1.Pod) error {
		for _, s := range p.Status.ContainerStatuses {
			if last := s.LastTerminationState.Terminated; last != nil && last.Reason == "StartError" && strings.Contains(last.Message, "<Secret>") {
				return nil
			}
		}
		return errors.New(asJSON(p.Status))
	})
	n.nowhere(word)
}

func TestDevices(t *testing.T) {
	n := newNode(t)
	must(t, os.MkdirAll(n.path("cdi"), 0o755))
	must(t, syscall.Mknod(n.path("node"), syscall.S_IFCHR|0o666, 200<<8|77)) // nobody's number
	must(t, os.WriteFile(n.path("cdi", "test.json"), fmt.Appendf(nil, `{"cdiVersion": "0.6.0", "kind": "podrun.example/log", "devices": [
		{"name": "one", "containerEdits": {"deviceNodes": [{"path": "/dev/one", "hostPath": %q, "permissions": "r"}],
		 "env": ["DEVICE=one"], "mounts": [{"hostPath": %q, "containerPath": "/one", "options": ["ro", "bind"]}]}}]}`, n.path("node"), n.path("cdi")), 0o644))
	annotated := func(name, device string) string {
		return strings.Replace(manifest(name, "Always", forever), "metadata:\n", "metadata:\n  annotations: {cdi.k8s.io/x: "+device+"}\n", 1)
	}
	flag := "--cdi-spec-dirs=" + n.path("cdi")
	_, pid := n.mainProcess(annotated("a", "podrun.example/log=one"), "a", flag)
	if got := n.ok("exec", "a", "--", "sh", "-c", "stat -c '%F %t:%T' /dev/one; echo $DEVICE; ls /one"); got != "character special file c8:4d\none\ntest.json\n" {
		t.Errorf("inside: %q", got)
	}
	if groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)); err == nil && strings.Contains(string(groups), ":devices:") {
		if got := cgroupFile(t, pid, "devices", "devices.list", ""); !strings.Contains(got, "c 200:77 r") || strings.Contains(got, "c 200:77 rw") {
			t.Errorf("the cgroup allows:\n%s", got)
		}
	}
	// The kernel asks the cgroup first: where that allows it, there is no such device.
	for _, c := range []struct{ script, want string }{
		{": </dev/one", "o such device"}, {": >>/dev/one", "not permitted"},
		{"mknod /other c 200 78 2>&-; : </other", "not permitted"}, {"mknod /same c 200 77 2>&-; : >>/same", "not permitted"},
	} {
		if got := n.ok("exec", "a", "--", "sh", "-c", "("+c.script+") 2>&1 || :"); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %s", c.script, got, c.want)
		}
	}
	n.refused(annotated("b", "podrun.example/log=two"), []string{"podrun.example/log=two"}, flag)
	// By limits: the one that there is is one pod's at a time, and the next one's as soon as that is gone.
	must(t, os.WriteFile(n.path("node.yaml"), []byte("devices: {podrun.example/gpu: [podrun.example/log=one]}\n"), 0o644))
	asking := func(name string) string {
		return inContainer(manifest(name, "Always", forever), "resources: {limits: {podrun.example/gpu: 1}}")
	}
	both := []string{flag, "--node-config=" + n.path("node.yaml")}
	if r := n.once(asking("d"), both...); r.code != 0 {
		t.Fatal(r)
	}
	n.says("d", "echo $DEVICE; [ -c /dev/one ] && echo there", "one\nthere")
	n.refused(asking("e"), []string{"podrun.example/gpu"}, both...) // another pod has it
	n.ok("down", "d")
	if r := n.once(asking("e"), both...); r.code != 0 {
		t.Errorf("one that is free again: %v", r)
	}
	n.refused(asking("f"), []string{"OutOfpodrun.example/gpu"}, flag) // the node does not have it
	if r := n.once(annotated("c", "podrun.example/log=one"), "--pod-security=baseline", flag); r.code != 2 || !strings.Contains(r.stderr, "devices") {
		t.Errorf("where it is not allowed: %v", r)
	}
}
