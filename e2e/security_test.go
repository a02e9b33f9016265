package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// processStatus is a line of a process's status on the host, without its name.
func processStatus(t *testing.T, pid int, name string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	t.Fatalf("no %s in the status of %d", name, pid)
	return ""
}

// mainProcess runs a manifest of one pod that stays, and returns the pod and its container's process.
func (n *node) mainProcess(m, name string, args ...string) (*v1.Pod, int) {
	n.t.Helper()
	if r := n.once(m, args...); r.code != 0 {
		n.t.Fatal(r)
	}
	p := n.pod(name + "-n")
	return p, n.mainPID(p, "c")
}

func TestRestricted(t *testing.T) {
	n := newNode(t)
	_, pid := n.mainProcess(inContainer(manifest("a", "Always", forever,
		"securityContext: {runAsUser: 1000, runAsGroup: 3000, runAsNonRoot: true, supplementalGroups: [4000], seccompProfile: {type: RuntimeDefault}}"),
		"securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}}"), "a")
	if got := n.ok("exec", "a", "--", "id"); got != "uid=1000 gid=3000 groups=3000,4000\n" {
		t.Errorf("id: %q", got)
	}
	if got := n.run("exec", "a", "--", "touch", "/tmp/x"); got.code == 0 || !strings.Contains(got.stderr, "Read-only file system") {
		t.Errorf("the root filesystem: %v", got)
	}
	if got := n.run("exec", "a", "--", "unshare", "-U", "true"); got.code == 0 {
		t.Errorf("the seccomp profile lets unshare through")
	}
	for name, want := range map[string]string{
		"Uid": "1000 1000 1000 1000", "Gid": "3000 3000 3000 3000", "Groups": "3000 4000", "NoNewPrivs": "1", "Seccomp": "2",
		"CapBnd": "0000000000000400", "CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapInh": "0000000000000000",
	} {
		if got := processStatus(t, pid, name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestSecurityDefaults(t *testing.T) {
	n := newNode(t)
	_, pid := n.mainProcess(manifest("a", "Always", forever), "a")
	for name, want := range map[string]string{
		"Uid": "0 0 0 0", "NoNewPrivs": "0", "Seccomp": "0", "CapBnd": "00000000a80425fb", "CapEff": "00000000a80425fb",
	} {
		if got := processStatus(t, pid, name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if r := n.run("exec", "a", "--", "sh", "-c", "echo 1 >/proc/sys/kernel/panic"); r.code == 0 {
		t.Error("/proc/sys can be written to")
	}
	if got := n.ok("exec", "a", "--", "sh", "-c", "wc -c </proc/keys"); strings.TrimSpace(got) != "0" {
		t.Errorf("/proc/keys is not masked: %q", got)
	}
	// The node's own default, and a container that does without it.
	_, pid = n.mainProcess(manifest("b", "Always", forever), "b", "--seccomp-default")
	if got := processStatus(t, pid, "Seccomp"); got != "2" {
		t.Errorf("--seccomp-default: %s", got)
	}
	_, pid = n.mainProcess(manifest("c", "Always", forever, "securityContext: {seccompProfile: {type: Unconfined}}"), "c", "--seccomp-default")
	if got := processStatus(t, pid, "Seccomp"); got != "0" {
		t.Errorf("Unconfined with --seccomp-default: %s", got)
	}
}

func TestPrivileged(t *testing.T) {
	n := newNode(t)
	_, pid := n.mainProcess(inContainer(manifest("a", "Always", forever), "securityContext: {privileged: true}"), "a")
	if got, want := processStatus(t, pid, "CapEff"), processStatus(t, os.Getpid(), "CapEff"); got != want {
		t.Errorf("capabilities %s, want %s", got, want)
	}
	if got := processStatus(t, pid, "Seccomp"); got != "0" {
		t.Errorf("seccomp %s", got)
	}
	devices, err := filepath.Glob("/dev/loop[0-9]*")
	must(t, err)
	for _, device := range append(devices, "/dev/kmsg") {
		if _, err := os.Stat(device); err == nil {
			n.ok("exec", "a", "--", "test", "-e", device)
		}
	}
	n.ok("exec", "a", "--", "sh", "-c", "mount -t tmpfs none /tmp && umount /tmp && test -w /proc/sys/kernel/panic && ! grep -q ' /sys sysfs ro' /proc/mounts")
}

func TestLocalhostSeccomp(t *testing.T) {
	n := newNode(t)
	m := manifest("a", "Always", forever, "securityContext: {seccompProfile: {type: Localhost, localhostProfile: deny/mkdir.json}}")
	n.refused(m, []string{"deny/mkdir.json is not there"})
	must(t, os.MkdirAll(n.path("root", "seccomp", "deny"), 0o755))
	must(t, os.WriteFile(n.path("root", "seccomp", "deny", "mkdir.json"), []byte(
		`{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 95}]}`), 0o644))
	if _, pid := n.mainProcess(m, "a"); processStatus(t, pid, "Seccomp") != "2" {
		t.Error("no filter")
	}
	if r := n.run("exec", "a", "--", "mkdir", "/tmp/x"); r.code == 0 || !strings.Contains(r.stderr, "not supported") {
		t.Errorf("mkdir: %v", r)
	}
}

func TestRefusedUsers(t *testing.T) {
	n := newNode(t)
	n.ok("images", "load", setup.tuned)
	for name, c := range map[string]struct{ manifest, want string }{
		"root":     {manifest("a", "Never", "true", "securityContext: {runAsNonRoot: true}"), "the image runs as root"},
		"apparmor": {manifest("b", "Never", "true", "securityContext: {appArmorProfile: {type: Localhost, localhostProfile: nosuch}}"), "AppArmor"},
		"selinux":  {manifest("d", "Never", "true", "securityContext: {seLinuxOptions: {level: 's0:c1,c2'}}"), "SELinux is not in use on this machine"},
	} {
		if _, err := os.Stat("/sys/fs/selinux/enforce"); err == nil && name == "selinux" {
			continue // it is in use
		}
		n.refused(c.manifest, []string{c.want, "CreateContainerConfigError"})
	}
	// The image's own user is a number, and with a group of the manifest's the image's user stays.
	m := strings.Replace(manifest("c", "Never", "id", "securityContext: {runAsNonRoot: true, runAsGroup: 9}"), box, tuned, 1)
	if r := n.once(m, "--logs=all"); r.code != 0 || !strings.Contains(r.stdout, "uid=65534(nobody) gid=9") {
		t.Errorf("the image's user: %v", r)
	}
}

func TestPodSecurity(t *testing.T) {
	n := newNode(t)
	n.write("a.yaml", manifest("a", "Always", forever))
	n.serve("--pod-security=baseline")
	uid := n.ready("a-n").UID
	// What asks for more does not start, and an edit that asks for more leaves what runs.
	n.write("b.yaml", inContainer(manifest("b", "Always", forever), "securityContext: {privileged: true}"))
	n.write("a.yaml", manifest("a", "Always", forever, "hostPID: true"))
	n.await("both to be refused", func() error {
		log, err := os.ReadFile(n.path("serve.log"))
		must(t, err)
		for _, file := range []string{"a.yaml", "b.yaml"} {
			if !strings.Contains(string(log), file+":") || !strings.Contains(string(log), "--pod-security baseline does not allow it") {
				return fmt.Errorf("%s is not refused", file)
			}
		}
		return nil
	})
	if p := n.pod("a-n"); p == nil || p.UID != uid || isReady(p) != nil {
		t.Errorf("the pod that ran: %s", asJSON(p))
	}
	if p := n.pod("b-n"); p != nil && len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Running != nil {
		t.Errorf("the pod that asks for more runs: %s", asJSON(p.Status))
	}
	if r := n.once(inContainer(manifest("c", "Never", "true"), "securityContext: {privileged: true}"), "--pod-security=baseline"); r.code != 2 {
		t.Errorf("once: %v", r)
	}
}

// Who may not read a manifest may not read what podrun writes about its pods.
func TestFileModes(t *testing.T) {
	n := newNode(t)
	n.write("a.yaml", manifest("a", "Always", "echo hello; "+forever))
	n.serve()
	n.ready("a-n")
	n.await("its log", func() error {
		if got := n.ok("logs", "a"); got != "hello\n" {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	seen := 0
	for _, top := range []string{"root", "run", "log"} {
		must(t, filepath.WalkDir(n.path(top), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil // gone meanwhile
			}
			info, err := d.Info()
			if err != nil {
				return nil
			}
			switch rel, _ := filepath.Rel(n.dir, path); {
			case rel == "root/containerd", rel == "root/bin", rel == "run/containerd":
				return filepath.SkipDir // no pods' content: containerd's own, and podrun's program
			case strings.HasPrefix(rel, "run/sandboxes/") && slices.Contains([]string{"net", "ipc", "uts"}, d.Name()):
				return nil // pins: the kernel asks for rights, not for a mode
			case rel == "run/etc":
				return filepath.SkipDir // what every process of the pod reads, whoever it is
			case d.IsDir() && info.Mode().Perm()&0o001 == 0:
				seen++
				return filepath.SkipDir // nobody else gets further
			case d.IsDir() && info.Mode().Perm()&0o022 != 0 && info.Mode()&os.ModeSticky == 0:
				t.Errorf("others can write to %s (%v)", rel, info.Mode())
			case info.Mode().IsRegular() && info.Mode().Perm()&0o006 != 0, info.Mode()&os.ModeSocket != 0 && info.Mode().Perm()&0o077 != 0:
				t.Errorf("others can read or write %s (%v)", rel, info.Mode())
			}
			if !d.IsDir() {
				seen++
			}
			return nil
		}))
	}
	if seen < 6 {
		t.Errorf("only %d files", seen)
	}
}

// TestRestrictedPod: a pod that --pod-security restricted allows has no way to be root: each field that the level demands is
// refused if it is missing, and has its effect on the process, which has a Secret's variable and volumes of every kind that
// the level has.
func TestRestrictedPod(t *testing.T) {
	n := newNode(t)
	const pod = `apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {k: v}
---
apiVersion: v1
kind: Pod
metadata: {name: c}
spec:
  restartPolicy: Never
  securityContext:
    runAsNonRoot: true
    seccompProfile: {type: RuntimeDefault}
    runAsUser: 1000
  volumes:
  - {name: e, emptyDir: {}}
  - {name: s, secret: {secretName: s}}
  - {name: p, projected: {sources: [{secret: {name: s}}, {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]}}
  - {name: c, persistentVolumeClaim: {claimName: mine}}
  containers:
  - name: c
    image: ` + box + `
    imagePullPolicy: Never
    command: [sh, -c, "grep -E '^(Uid|CapPrm|CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; cat /s/k /p/name; echo $K; touch /root-owned; mount -t tmpfs x /e; true"]
    env: [{name: K, valueFrom: {secretKeyRef: {name: s, key: k}}}, {name: PODRUN_WITHHELD, value: /etc}]
    volumeMounts: [{name: e, mountPath: /e}, {name: s, mountPath: /s}, {name: p, mountPath: /p}, {name: c, mountPath: /c}]
    securityContext:
      allowPrivilegeEscalation: false
      capabilities: {drop: [ALL]}
`
	r := n.once(pod, "--pod-security=restricted", "--logs=all", "--rm")
	want := "Uid:\t1000\t1000\t1000\t1000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\nvc-nv\n"
	if r.code != 0 || !strings.HasPrefix(r.stdout, want) {
		t.Errorf("%d: %q, %s", r.code, r.stdout, r.stderr)
	}
	for _, denied := range []string{"/root-owned: Permission denied", "permission denied (are you root?)"} {
		if !strings.Contains(strings.ToLower(r.stdout+r.stderr), strings.ToLower(denied)) {
			t.Errorf("not denied: %s: %q, %s", denied, r.stdout, r.stderr)
		}
	}
	for _, demanded := range []string{
		"    runAsNonRoot: true\n", "    seccompProfile: {type: RuntimeDefault}\n", "      allowPrivilegeEscalation: false\n",
		"      capabilities: {drop: [ALL]}\n",
	} {
		r := n.once(strings.Replace(pod, demanded, "", 1), "--pod-security=restricted")
		if r.code != 2 || !strings.Contains(r.stderr, "--pod-security restricted does not allow it") {
			t.Errorf("without %q: %v", demanded, r)
		}
	}
	for _, more := range []string{"hostNetwork: true", "hostPID: true", "hostIPC: true"} {
		r := n.once(strings.Replace(pod, "spec:\n", "spec:\n  "+more+"\n", 1), "--pod-security=restricted")
		if r.code != 2 || !strings.Contains(r.stderr, "--pod-security restricted does not allow it") {
			t.Errorf("with %q: %v", more, r)
		}
	}
}
