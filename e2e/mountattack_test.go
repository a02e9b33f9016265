package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
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

// leading is a pod whose containers have volumes where runc works by path, while what is in the volumes is exchanged.
const leading = `apiVersion: v1
kind: Pod
metadata: {name: a, uid: u-leading}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: v, emptyDir: {}}, {name: w, emptyDir: {}}, {name: u, emptyDir: {}}]
  initContainers:
  - name: fill
    image: podrun.example/box:1
    volumeMounts: [{name: v, mountPath: /v}, {name: w, mountPath: /w}, {name: u, mountPath: /u}]
    command: [sh, -c, "mkdir /v/shm /v/mqueue /w/shm /w/mqueue /w/pts /v/real /v/proc /v/dev /v/sys; cp -a /bin /v; ln -s /mnt /v/pts;
      ln -s /mnt/0 /w/pts/0; ln -s /proc/sys/fs/lease-break-time /w/pts/e; ln -s /mnt/ptmx /w/ptmx; ln -s /real /v/p2;
      ln -s /p2/self /v/real/self; ln -s /p2/thread-self /v/real/thread-self; ln -s /dev /v/q; ln -s /dev /u/dev; mknod /w/null c 1 3"]
  - name: keep
    image: podrun.example/box:1
    restartPolicy: Always
    command: [sleep, 1d]
  containers:
  - name: dev
    image: podrun.example/box:1
    tty: true
    stdin: true
    command: &write [sh, -c, "for f in /dev/console /p2/sys/fs/lease-break-time /proc/sys/fs/lease-break-time; do
      n=$(timeout 1 cat /proc/sys/fs/lease-break-time || timeout 1 cat $f); [ -n \"$n\" ] && [ -f $f ] && echo $n >$f && echo written by $f;
      done; sleep 1d"]
    volumeMounts: [{name: v, mountPath: /dev}, {name: v, mountPath: /q}, {name: w, mountPath: /q/q}]
  - {name: root, image: podrun.example/box:1, command: *write, volumeMounts: [{name: v, mountPath: /}]}
  - name: link
    image: podrun.example/box:1
    command: *write
    volumeMounts: [{name: u, mountPath: /u}, {name: u, mountPath: /u/dev}]
`

// TestRuntimeIsNotLedAstray: containers with which a volume's content leads runc to the machine's parameters do not start.
func TestRuntimeIsNotLedAstray(t *testing.T) {
	n := newNode(t)
	n.serve("--pod-security=baseline")
	n.write("a.yaml", leading)
	volumes := n.path("root", "pods", "u-leading", "volumes", "kubernetes.io~empty-dir")
	exchange := func(a, b string) {
		_ = unix.Renameat2(unix.AT_FDCWD, volumes+a, unix.AT_FDCWD, volumes+b, unix.RENAME_EXCHANGE)
	}
	last := time.Now().Add(15 * time.Second) // some starts of each
	for time.Now().Before(last) {
		exchange("/w/pts/0", "/w/pts/e")
		exchange("/v/proc", "/v/p2")
		time.Sleep(2 * time.Millisecond)
	}
	n.awaitPod("a-n", "to say why nothing starts", func(p *v1.Pod) error {
		for _, c := range p.Status.ContainerStatuses {
			if c.Started != nil && *c.Started || c.State.Running != nil {
				t.Fatalf("%s runs: %v, %s", c.Name, c.State, n.run("logs", "a", "-c", c.Name).stdout)
			}
			text := asJSON(c)
			want := "a volume is mounted at"
			if c.Name == "link" {
				want = "led the runtime astray"
			}
			if !strings.Contains(text, want) {
				return fmt.Errorf("%s does not say %q: %s", c.Name, want, text)
			}
		}
		return nil
	})
}
