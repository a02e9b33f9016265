package e2e

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"podrun.io/podrun/internal/test/testimage"
)

// Files are copied into containers and out of them, also where there is no tar, no shell and no writable root, and into
// volumes; in a pod with users of its own they are its root's.
func TestCopy(t *testing.T) {
	n := newNode(t)
	must(t, os.Chmod(n.dir, 0o711)) // as /run and /var/lib are
	const bare = "podrun.example/bare:1"
	archive, err := testimage.Program(n.dir, bare, "/bin/busybox", testimage.WorkingDir("/var"))
	must(t, err)
	n.ok("images", "load", archive)
	volumes := []string{"volumes: [{name: v, emptyDir: {}}, {name: c, configMap: {name: c}}]"}
	mounts := "volumeMounts: [{name: v, mountPath: /v}, {name: c, mountPath: /c}]"
	n.write("bare.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {k: value}\n---\n"+
		strings.Replace(strings.Replace(inContainer(manifest("bare", "Always", "", volumes...), mounts, "securityContext: {readOnlyRootFilesystem: true}"),
			"image: "+box, "image: "+bare, 1), `[sh, -c, ""]`, `[/bin/busybox, sleep, "100000"]`, 1))
	n.write("web.yaml", manifest("web", "Always", forever))
	n.write("chdir.yaml", inContainer(manifest("chdir", "Always", "mkdir -p /opt; cd /tmp; "+forever), "workingDir: /opt"))
	own := os.Getenv("PODRUN_E2E_CONTAINERD") != "debian" // it is too old
	if own {
		n.write("own.yaml", inContainer(manifest("own", "Always", forever, append(volumes, "hostUsers: false")...), mounts))
	}
	n.serve()
	n.ready("bare-n")
	must(t, os.MkdirAll(n.path("here", "d"), 0o755))
	must(t, os.WriteFile(n.path("here", "f"), []byte("first\n"), 0o640))
	must(t, os.WriteFile(n.path("here", "d", "g"), []byte("second\n"), 0o755))
	must(t, os.Chown(n.path("here", "f"), 33, 34))

	n.ok("cp", n.path("here"), "bare:/v")
	n.ok("cp", "bare:/v/here", n.path("back"))
	n.ok("cp", "default/bare-n:/c/k", n.path("back"), "-c", "c")
	n.ok("cp", "bare:../etc/hostname", n.path("back"))
	for name, want := range map[string]string{"f": "first\n", "d/g": "second\n", "k": "value", "hostname": "bare-n\n"} {
		if text, err := os.ReadFile(n.path("back", name)); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	for to, why := range map[string]string{
		"bare:/etc/f": "bare-n:/etc/f: read-only file system", "bare:/c/new": "bare-n:/c/new: read-only file system",
		"bare:/v/none/f": "bare-n:/v/none: no such file or directory",
	} {
		if r := n.run("cp", n.path("here", "f"), to); r.code != 1 || !strings.Contains(r.stderr, why) {
			t.Errorf("cp to %s: %+v", to, r)
		}
	}

	n.ready("chdir-n")
	n.ready("web-n")
	n.ok("cp", n.path("here", "f"), "chdir:g") // where exec begins, and not where the process has gone
	n.says("chdir", "pwd; ls /opt; cat g", "/opt\ng\nfirst")
	n.ok("cp", n.path("here", "f"), "web:/tmp/f")
	n.says("web", "cat /tmp/f; stat -c '%u:%g %a' /tmp/f", "first\n33:34 640")
	if r := n.run("cp", n.path("here", "f"), "web:/etc/hosts"); r.code != 1 || !strings.Contains(r.stderr, "is a mount of its own") {
		t.Errorf("cp to a mount: %+v", r)
	}
	n.says("web", "mknod /tmp/null c 1 3; ln -s / /tmp/out; mkfifo /tmp/fifo; ls /etc/f 2>/dev/null || true", "")
	r := n.run("cp", "web:/tmp", n.path("tmp"))
	if r.code != 0 || strings.Count(r.stderr, "skipping") != 3 || strings.Contains(r.stderr, "first") {
		t.Errorf("cp of links and devices: %+v", r)
	}
	n.ok("cp", n.path("here", "f"), "web:/tmp/out/etc/f")
	n.says("web", "cat /etc/f", "first")
	if r := n.run("cp", n.path("here", "f"), "web:/tmp/null"); r.code != 1 || !strings.Contains(r.stderr, "is a device") {
		t.Errorf("cp to a device: %+v", r)
	}
	if own {
		n.ready("own-n")
		n.ok("cp", n.path("here"), "own:/v")
		n.ok("cp", n.path("here", "d"), "own:/root/d", "--no-preserve")
		n.says("own", "stat -c '%u:%g %a' /v/here/f /v/here/d /root/d/g; echo more >>/v/here/f", "33:34 640\n0:0 755\n0:0 755")
		n.ok("cp", "own:/v/here/f", n.path("more"))
		if text, err := os.ReadFile(n.path("more")); err != nil || string(text) != "first\nmore\n" {
			t.Errorf("%q, %v", text, err)
		}
	}
	n.end(syscall.SIGKILL) // it works while no serve runs
	n.ok("cp", "web:/tmp/f", n.path("again"))
	n.ok("down", "--all")
	if r := n.run("cp", "web:/tmp/f", n.path("again")); r.code != 1 || strings.Contains(r.stderr, "proc") {
		t.Errorf("cp of a pod that is gone: %+v", r)
	}
}
